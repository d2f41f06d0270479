"""The server's own page in a real browser: `page.py target/release/ladder [SCREENSHOTS]`.

On a desktop's width and on a phone's, light and dark: a chat streams an answer, stops and begins anew, the live view
moves under a load and comes to rest after it, everything can be done by key, and nothing is asked of anybody but the
server. Long answers are no slower than their length, what goes wrong is told, and tabs that nobody sees leave the server's
connections to others.
"""

import json
import pathlib
import sys
import threading
import urllib.request

from playwright.sync_api import Browser, Error, Page, sync_playwright

from served import served

CHROMIUM = "/usr/bin/chromium"
SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
# Of a browser to a server, all tabs together.
CONNECTIONS = 6
# Pieces of a long answer. Each written by itself, and the whole text anew, they took ten seconds.
LONG, LONG_SECONDS = 4000, 3
NARROWEST = 280
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


def pace(page: Page) -> None:
    """Lets no more than an event of the next answer come in each frame: else a short one is there after one or two."""
    page.evaluate("""() => {
      const own = window.fetch;
      window.fetch = async (address, options) => {
        window.fetch = own;
        const frames = new TransformStream({ async transform(text, events) {
          for (const event of text.split(/(?<=\\n\\n)/)) {
            events.enqueue(event);
            await new Promise(requestAnimationFrame);
          }
        } });
        const { body } = await own(address, options);
        return new Response(body.pipeThrough(new TextDecoderStream()).pipeThrough(frames).pipeThrough(new TextEncoderStream()));
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
    pace(page)
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
            assert page.get_attribute("#log", "aria-busy") == "true", "a screen reader does not know of more"
            page.keyboard.press("Escape")
        else:
            page.click("#stop")
            page.wait_for_selector("#stop:disabled", state="attached")
            assert page.evaluate("document.activeElement.id") == "said", "whoever stops an answer is nowhere"
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
          window.fall_silent = () => {
            pieces.enqueue(new TextEncoder().encode("data: [DONE]\\n\\n"));
            pieces.close();
          };
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


def lasts(page: Page) -> None:
    """Gets long answers, seen and in a tab that is hidden: in time, whole, and only ever added to."""
    for is_hidden in [False, True]:
        page.click("#new")
        page.evaluate("""([pieces, is_hidden]) => {
          const own = window.fetch;
          window.fetch = async () => {
            window.fetch = own;
            const data = (number) => number === pieces ? "[DONE]" : JSON.stringify({ choices: [{ delta: number < 100
              ? { reasoning_content: `${number}? ` } : { content: number % 12 ? ` ${number}` : `\\n${number}` } }] });
            let number = 0;
            return new Response(new ReadableStream({ pull(events) {
              events.enqueue(new TextEncoder().encode(`data: ${data(number)}\\n\\n`));
              if (number++ === pieces) events.close();
            } }));
          };
          // What a tab that is hidden has instead of frames.
          const frames = window.requestAnimationFrame;
          if (is_hidden) window.requestAnimationFrame = () => 1;
          window.begun = performance.now();
          window.writes = [];
          const log = document.getElementById("log");
          window.took = new Promise((seen) => new MutationObserver((changes, observer) => {
            const texts = changes.filter(({ type }) => type === "characterData");
            const is_added = (change) => change.target.data.startsWith(change.oldValue);
            if (texts.length) writes.push(texts.every(is_added));
            if (!document.querySelector(".turn.assistant small")) return;
            observer.disconnect();
            window.requestAnimationFrame = frames;
            seen(performance.now() - begun);
          }).observe(log, { childList: true, subtree: true, characterData: true, characterDataOldValue: true }));
        }""", [LONG, is_hidden])
        page.keyboard.type("Count.\n")
        took, frames = page.evaluate("took") / 1e3, page.evaluate("[writes.length, writes.every(Boolean)]")
        assert took < LONG_SECONDS, f"{LONG} pieces took {took:.1f} s"
        most = 1 if is_hidden else took * 60 + 2
        assert frames[1] and frames[0] <= most, f"a text is written anew, or {frames[0]} times in {took:.2f} s"
        assert page.get_attribute("#log", "aria-busy") == "false"
        thoughts = "".join(f"{number}? " for number in range(100))
        text = "".join(f" {number}" if number % 12 else f"\n{number}" for number in range(100, LONG))
        assert page.text_content(".turn.assistant i") == thoughts, "not all thoughts"
        assert page.text_content(".turn.assistant span") == "\n\n" + text, "not the whole answer"


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


def fails(page: Page) -> None:
    """Sees what is no answer, or no whole one: a proxy's page, and an answer that is cut off in its thoughts and in its
    text."""
    def ask(expected: str, **response) -> str:
        page.click("#new")
        page.route("**/v1/chat/completions", lambda route: route.fulfill(**response), times=1)
        page.fill("#said", "Who are you?")
        page.press("#said", "Enter")
        page.wait_for_selector(".turn.wrong")
        page.wait_for_selector("#stop:disabled", state="attached")
        assert page.text_content(".turn.wrong") == expected, page.text_content(".turn.wrong")
        return "".join(page.locator(".turn.assistant").all_text_contents())

    assert not ask("502 Bad Gateway", status=502, content_type="text/html", body="<h1>502</h1>")
    assert not ask("404 Not Found", status=404, content_type="application/json", body='{"detail": "no such page"}')
    for kind in ["reasoning_content", "content"]:
        piece = json.dumps({"choices": [{"delta": {kind: "I am a sm"}}]})
        answer = ask("the answer ended in its middle", content_type="text/event-stream", body=f"data: {piece}\n\n")
        assert answer.startswith("I am a sm") and answer.endswith("failed"), answer
        left = "" if kind == "content" else "Who are you?"
        assert page.input_value("#said") == left, "what was not answered can be sent again"
    page.click("#new")


def misreads(page: Page) -> None:
    """Types what a browser gives nothing for, and what would be rounded, and sees that it is not sent."""
    sent = []
    page.on("request", lambda request: request.url.endswith("/completions") and sent.append(request.url))
    page.locator("summary").click()
    for name, typed, expected in [
        ("temperature", "-", "Temperature: expected a number"), ("tokens", "1e", "Most tokens: expected a whole number"),
        ("seed", "9007199254740993", "Seed: expected a whole number from -9007199254740991 to 9007199254740991"),
    ]:
        page.click("#new")
        page.focus("#" + name)
        page.keyboard.type(typed)
        page.fill("#said", "Who are you?")
        page.press("#said", "Enter")
        assert page.text_content(".turn.wrong").startswith(expected), page.text_content(".turn.wrong")
        assert page.input_value("#said") == "Who are you?" and page.is_enabled("#send")
        page.fill("#" + name, "")
    assert not sent, "what was typed is sent as something else"
    page.locator("summary").click()


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


def hide(page: Page, is_hidden: bool) -> None:
    """What a browser without windows does not do."""
    page.evaluate("""(is_hidden) => {
      Object.defineProperty(document, "hidden", { value: is_hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }""", is_hidden)


def asks(page: Page) -> None:
    page.fill("#said", "Who are you?")
    page.press("#said", "Enter")
    page.wait_for_selector(".turn.assistant small", timeout=10_000)
    assert page.locator(".turn.wrong").count() == 0, page.text_content("#log")


def many(browser: Browser, address: str) -> None:
    """Opens more tabs than a browser has connections to a server, and chats in the last one; the first finds the engine
    again as soon as it is seen."""
    context = browser.new_context()
    tabs = []
    for _ in range(CONNECTIONS + 1):
        if tabs:
            hide(tabs[-1], True)
        tabs.append(context.new_page())
        tabs[-1].goto(address)
        tabs[-1].wait_for_selector("#link:text('connected')")
    asks(tabs[-1])
    assert all(tab.text_content("#link") == "connected" for tab in tabs), "a tab that nobody sees has lost nothing"
    hide(tabs[-1], True)
    tabs[0].evaluate("document.getElementById('model').textContent = ''")
    hide(tabs[0], False)
    tabs[0].wait_for_function("() => document.getElementById('model').textContent")
    context.close()


def knows_a_key(browser: Browser, address: str) -> None:
    """Opens the page by an address with a key in it."""
    page = browser.new_page()
    page.goto(address.replace("://", "://user:key@"))
    page.wait_for_selector("#link:text('connected')")
    asks(page)
    page.close()


def fits(page: Page) -> None:
    width, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= screen, f"{width} pixels wide on a screen of {screen}"
    overflowing = page.evaluate("""[...document.querySelectorAll("#figures div")]
      .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.textContent)""")
    assert not overflowing, f"wider than their boxes: {overflowing}"
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
        screen = page.viewport_size
        page.set_viewport_size({"width": NARROWEST, "height": screen["height"]})
        fits(page)
        page.set_viewport_size(screen)
    page.wait_for_function("() => document.getElementById('running').textContent === '0'")
    fits(page)
    stays(page)
    lasts(page)
    misreads(page)
    keys(page)
    assert not problems, "; ".join(problems)
    fails(page)
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
            for opens in [many, knows_a_key]:
                try:
                    opens(browser, address)
                except (AssertionError, Error) as problem:
                    failed += 1
                    print(f"{opens.__name__}: {problem}", file=sys.stderr)
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
