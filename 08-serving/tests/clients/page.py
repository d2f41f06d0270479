"""The server's own page in a real browser: `page.py target/release/ladder [SCREENSHOTS]`.

On a desktop's width and on a phone's, light and dark: a chat streams an answer, stops and begins anew, the live view
moves under a load and comes to rest after it, everything can be done by key, and nothing is asked of anybody but the
server.
"""

import json
import pathlib
import sys
import threading
import urllib.request

from playwright.sync_api import Error, Page, sync_playwright

from served import served

CHROMIUM = "/usr/bin/chromium"
SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
REACHED_BY_KEY = {"log", "said", "send", "new", "temperature", "tokens", "seed", "system", "tree"}

# Of a text on its ground, as WCAG 2 counts it; what is drawn behind a text is the nearest ground that is not clear.
CONTRAST = """(selector) => {
  const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  let behind = element;
  while (parts(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


class Load:
    """Others who keep the engine busy, with more than its pool has room for."""

    def __init__(self, address: str):
        self.address, self.is_over = address, threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(n,)) for n in range(3)]

    def ask(self, number: int) -> None:
        while not self.is_over.is_set():
            body = {"prompt": f"Once upon a time there were {number}", "n": 8, "max_tokens": 400, "ignore_eos": True}
            request = urllib.request.Request(
                self.address + "v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
            urllib.request.urlopen(request).read()

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def fill_in(page: Page, name: str, value: str) -> None:
    """A parameter, folded away or not."""
    page.evaluate("([name, value]) => { document.getElementById(name).value = value; }", [name, value])


def halt(page: Page) -> None:
    """Lets no more than the beginning of the next answer come, so that one is in its middle for as long as one likes."""
    page.evaluate("""() => {
      const own = window.fetch;
      window.fetch = async (address, options) => {
        window.fetch = own;
        const reader = (await own(address, options)).body.getReader();
        let left = 4000; // bytes: less than twenty pieces of 150
        return new Response(new ReadableStream({
          start(pieces) { options.signal.addEventListener("abort", () => pieces.error(options.signal.reason)); },
          async pull(pieces) {
            const { done, value } = await reader.read();
            if (done) throw new Error("the answer is over before its middle");
            pieces.enqueue(value.subarray(0, left));
            left -= value.length;
            if (left <= 0) await new Promise(() => {});
          },
        }));
      };
    }""")


def chat(page: Page) -> None:
    """Asks by key, and sees the answer grow."""
    assert page.evaluate("document.activeElement.id") == "said", "one can type at once"
    page.evaluate("""() => {
      window.lengths = new Set();
      new MutationObserver(() => lengths.add(document.querySelector(".turn.assistant")?.textContent.length ?? 0))
        .observe(document.getElementById("log"), { childList: true, subtree: true, characterData: true });
    }""")
    page.keyboard.type("Who are you?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".turn.assistant small")
    assert page.evaluate("lengths.size") > 5, "the answer comes in pieces"
    answer, told = page.text_content(".turn.assistant"), page.text_content(".turn.assistant small")
    assert "tokens in" in told and len(answer) > len(told) + 10, answer
    assert page.input_value("#said") == "" and page.is_disabled("#stop")


def stop(page: Page) -> None:
    """Stops an answer, by key and by button."""
    for by_key in [True, False]:
        answers = page.locator(".turn.assistant").count()
        held = []
        if by_key:
            halt(page)
        else:
            page.route("**/v1/chat/completions", lambda route: held.append(route), times=1)
        page.focus("#said")
        page.keyboard.type("Tell me a long tale.")
        page.keyboard.press("Enter")
        page.wait_for_function("n => document.querySelectorAll('.turn.assistant').length > n", arg=answers)
        if by_key:
            # In the middle of its text; the other one before it has begun.
            page.wait_for_function("() => [...document.querySelectorAll('.turn.assistant')].at(-1).textContent.length > 20")
            page.keyboard.press("Escape")
        else:
            page.click("#stop")
        page.wait_for_function("n => document.querySelectorAll('.turn.assistant small').length > n", arg=answers)
        assert page.locator(".turn.assistant small").last.text_content().endswith("stopped")
        for route in held:
            route.abort()
        assert page.is_enabled("#send") and page.locator(".turn.wrong").count() == 0
    assert page.input_value("#said") == "Tell me a long tale.", "what was not answered can be sent again"
    with page.expect_request("**/v1/chat/completions") as sent:
        page.click("#send")
    roles = [message["role"] for message in sent.value.post_data_json["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], roles
    assert all(message["content"] for message in sent.value.post_data_json["messages"])
    page.wait_for_selector("#stop:disabled", state="attached")


def stays(page: Page) -> None:
    """Reads further up, in the conversation and then elsewhere on the page, while an answer comes; whoever is at the
    conversation's end sees it."""
    # An answer whose pieces come when they are to.
    page.evaluate("""() => {
      const own = window.fetch;
      window.fetch = async () => {
        window.fetch = own;
        return new Response(new ReadableStream({ start(pieces) {
          const data = (text) => JSON.stringify({ choices: [{ delta: { content: text } }] });
          window.say = (text) => pieces.enqueue(new TextEncoder().encode(`data: ${data(text)}\\n\\n`));
          window.fall_silent = () => pieces.close();
        } }));
      };
    }""")
    page.focus("#said")
    page.keyboard.type("Count.\n")
    page.wait_for_function("() => window.say")
    long, seen = "line\n" * 100, "n => document.querySelector('.turn.assistant:last-child span')?.textContent.length === n"
    left = "(() => { const log = document.getElementById('log'); return log.scrollHeight - log.clientHeight - log.scrollTop; })()"
    for piece in [1, 2]:
        page.evaluate("text => say(text)", long)
        page.wait_for_function(seen, arg=piece * len(long))
        assert page.evaluate(left) < 2, "the end of an answer is not seen"
    place = page.evaluate("""() => {
      document.getElementById("log").scrollTop = 10;
      document.getElementById("engine").scrollIntoView();
      return [document.getElementById("log").scrollTop, scrollY];
    }""")
    page.evaluate("text => say(text)", long)
    page.wait_for_function(seen, arg=3 * len(long))
    page.evaluate("fall_silent()")
    page.wait_for_selector("#stop:disabled", state="attached")
    now = page.evaluate("[document.getElementById('log').scrollTop, scrollY]")
    assert now == place, f"who reads further up is moved from {place} to {now}"


def moves(page: Page) -> None:
    """Sees the engine work."""
    page.wait_for_selector("#passes .preempted", state="attached")
    page.wait_for_function("() => document.querySelectorAll('#requests tr').length > 5")
    seen = set()
    for _ in range(10):
        seen.add(page.text_content("#pass") + page.text_content("#passes-told"))
        page.wait_for_timeout(250)
    assert len(seen) > 3, f"the live view stands still: {seen}"
    assert page.locator("#passes .decode").count() > 20 and page.locator("#passes .tokens").count() > 20


def begin_anew(page: Page) -> None:
    """Begins another conversation in the middle of an answer, which is no part of it."""
    page.click("#new")
    halt(page)
    page.keyboard.type("Tell me a long tale.")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.turn.assistant')?.textContent.length > 20")
    assert page.is_enabled("#stop"), "the answer is still under way"
    page.click("#new")
    fill_in(page, "temperature", "")
    page.keyboard.type("Who are you?")
    with page.expect_request("**/v1/chat/completions") as sent:
        page.keyboard.press("Enter")
    fill_in(page, "temperature", "0")
    assert sent.value.post_data_json["messages"] == [{"role": "user", "content": "Who are you?"}]
    assert sent.value.post_data_json.keys() == {"messages", "stream", "stream_options"}, "what nobody chose is not sent"
    page.wait_for_selector(".turn.assistant small")
    assert page.locator(".turn").count() == 2, page.text_content("#log")


def keys(page: Page) -> None:
    """Steps through everything that can have the focus, and sees where it is."""
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline = page.evaluate("[document.activeElement.id, getComputedStyle(document.activeElement).outlineWidth]")
        reached.add(name)
        assert not name or float(outline.removesuffix("px")) >= 1, f"one does not see the focus on {name}"
    assert REACHED_BY_KEY <= reached, f"not reached by key: {REACHED_BY_KEY - reached}"
    page.locator("summary").press("Enter")
    page.focus("#new")
    page.keyboard.press("Enter")
    assert page.locator(".turn").count() == 0, "a new conversation is empty"


def refuses(page: Page) -> None:
    """Sends what is out of range, from parameters that are folded away, and sees the server say so."""
    assert page.locator("details[open]").count() == 0
    fill_in(page, "temperature", "0.75")
    fill_in(page, "tokens", "0")
    page.fill("#said", "Who are you?")
    with page.expect_request("**/v1/chat/completions") as sent:
        page.click("#send")
    assert sent.value.post_data_json["temperature"] == 0.75
    page.wait_for_selector(".turn.wrong")
    assert "max_tokens" in page.text_content(".turn.wrong"), page.text_content(".turn.wrong")
    assert page.input_value("#said") == "Who are you?", "what was refused can be sent again"


def returns(page: Page) -> None:
    """Finds no place at first, and then one."""
    page.route("**/state", lambda route: route.fulfill(status=503), times=1)
    page.reload()
    page.wait_for_function("() => document.getElementById('link').className === 'lost'")
    page.wait_for_function("() => document.getElementById('link').textContent === 'connected'")


def parts(page: Page) -> None:
    """Sees the server end, which is not a connection that was lost."""
    page.wait_for_function("() => document.getElementById('link').textContent === 'shutting down'")
    # Until the browser has tried again, in vain.
    page.wait_for_event("requestfailed", lambda request: request.url.endswith("/state"))
    assert page.text_content("#link") == "shutting down"


def fits(page: Page) -> None:
    width, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= screen, f"{width} pixels wide on a screen of {screen}"
    for selector in ["#model", "dt", "dd", ".legend li", "figcaption", "th", "#send", "#new"]:
        contrast = page.evaluate(CONTRAST, selector)
        assert contrast >= 4.5, f"{selector} has a contrast of {contrast:.1f}"


def look(page: Page, address: str, shot: pathlib.Path | None) -> None:
    problems = []
    page.on("pageerror", lambda error: problems.append(f"a script failed: {error}"))
    page.on("console", lambda said: said.type in ("error", "warning") and problems.append(said.text))
    page.on("response", lambda r: r.status >= 400 and problems.append(f"{r.status}: {r.url}"))
    page.on("request", lambda r: r.url.startswith((address, "data:")) or problems.append(f"asked for {r.url}"))
    page.goto(address, wait_until="load")
    page.wait_for_function("() => document.getElementById('link').textContent === 'connected'")
    # The likeliest tale is a long one.
    fill_in(page, "temperature", "0")
    chat(page)
    with Load(address):
        moves(page)
        begin_anew(page)
        stop(page)
        fits(page)
        if shot:
            page.screenshot(path=shot, full_page=True)
    page.wait_for_function("() => document.getElementById('running').textContent === '0'")
    fits(page)
    stays(page)
    keys(page)
    assert not problems, "; ".join(problems)
    refuses(page)
    returns(page)


def main() -> int:
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    grounds, failed = {}, 0
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        with served(sys.argv[1]) as address:
            for width, scheme in SCREENS:
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                try:
                    look(page, address + "/", shots and shots / f"page-{width}-{scheme}.png")
                    grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
                except (AssertionError, Error) as problem:
                    failed += 1
                    print(f"{width} pixels, {scheme}: {problem}", file=sys.stderr)
                page.close()
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector("#link:text('connected')")
        try:
            parts(page)
        except (AssertionError, Error) as problem:
            failed += 1
            print(f"as the server ends: {problem}", file=sys.stderr)
        browser.close()
    if len(set(grounds.values())) != 2:
        failed += 1
        print(f"light and dark do not differ: {grounds}", file=sys.stderr)
    print(f"the page on {len(SCREENS)} screens")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
