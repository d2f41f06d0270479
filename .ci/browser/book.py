"""Every page of the built book in a real browser: `book.py target/book [SCREENSHOTS]`.

On a desktop's width and on a phone's, beside each other: nothing is missing, nothing is asked of anybody but the server,
no script fails, no page is wider than the screen, with everything unfolded, and every label of a plot can be read.
Every stepper steps by key and by button to its last frame, every question knows its answer, every control of a
simulator changes something. On the page that has all pages in it, where each step takes a while, the first of them are
tried so; all questions are answered at once, and names that occur twice are looked for, which would make figures meddle
with each other.
"""

import functools
import http.server
import pathlib
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

from playwright.sync_api import Browser, Locator, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WIDTHS = [1280, 390]
ALL_PAGES = "print.html"
# How wide a page is and how wide the screen, with what is folded laid out as well; what was closed is closed again.
UNFOLDED = """() => {
    const closed = document.querySelectorAll("details:not([open])");
    for (const details of closed) details.open = true;
    const widths = [document.documentElement.scrollWidth, innerWidth];
    for (const details of closed) details.open = false;
    return widths;
}"""

# Labels of plots that are cut off, or stand on each other. A letter is less high than its line.
LABELS = """() => [...document.querySelectorAll(".plotted > svg")].flatMap(plot => {
    const edge = plot.getBoundingClientRect();
    const labels = [...plot.querySelectorAll("text")].map(text => {
        const { left, right, top, bottom } = text.getBoundingClientRect();
        const upright = text.getAttribute("transform")?.startsWith("rotate(270");
        const [x, y] = upright ? [(right - left) * 0.15, 0] : [0, (bottom - top) * 0.15];
        return { said: text.textContent.trim(), left: left + x, right: right - x, top: top + y, bottom: bottom - y };
    });
    const cut = labels.filter(one => one.left < edge.left || one.right > edge.right || one.top < edge.top || one.bottom > edge.bottom);
    const meet = (one, other) =>
        one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    const met = labels.flatMap((one, i) => labels.slice(0, i).filter(other => meet(one, other)).map(other => [other, one]));
    return [...cut.map(one => `"${one.said}" is cut off`), ...met.map(([one, other]) => `"${other.said}" stands on "${one.said}"`)]
        .map(problem => `${plot.ariaLabel}: ${problem}`);
})"""


def serve(folder: pathlib.Path) -> str:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def visible_frames(stepper) -> list[int]:
    return stepper.evaluate(
        "s => [...s.querySelectorAll(':scope > .frame')]"
        ".flatMap((f, i) => getComputedStyle(f).visibility === 'visible' ? [i] : [])"
    )


def twins(page: Page) -> list[str]:
    """Names that occur twice: an id, or what holds the buttons of one choice together."""
    return page.evaluate("""() => {
        const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
        const groups = [...document.querySelectorAll(".stepper, .question")].flatMap(
            figure => [...new Set([...figure.querySelectorAll("input[type=radio]")].map(input => input.name))]);
        return [ids, groups].flatMap(names => names.filter((name, i) => names.indexOf(name) !== i));
    }""")


def steppers(page: Page, most: int | None) -> int:
    """Steps through steppers, first with the arrow key, then with the buttons."""
    found = page.locator(".stepper").all()[:most]
    for stepper in found:
        frames = stepper.locator("> .frame").count()
        assert frames > 1, "a stepper with one frame"
        assert visible_frames(stepper) == [0], "the first frame is shown first"
        stepper.locator("> input").first.focus()
        address = page.url
        for frame in range(1, frames):
            page.keyboard.press("ArrowRight")
            assert visible_frames(stepper) == [frame], f"the key shows frame {frame}"
        assert page.url == address, "the key steps and does not turn the page"
        for frame in reversed(range(frames - 1)):
            stepper.locator(f"> .frame:nth-of-type({frame + 2}) label", has_text="Back").click()
            assert visible_frames(stepper) == [frame], f"the button goes back to frame {frame}"
        stepper.locator("> .frame:nth-of-type(1) label", has_text="Next").click()
        assert visible_frames(stepper) == [1], "the button goes on"
    return len(found)


def simulators(page: Page, most: int | None) -> int:
    """Moves every control of simulated figures: each says what it said without scripts, then something else."""
    found = page.locator("figure.simulated").all()[:most]
    as_written = """async () => {
        const text = await (await fetch(location.href)).text();
        const figures = new DOMParser().parseFromString(text, "text/html").querySelectorAll(".simulated");
        return [...figures].map(figure =>
            [figure.querySelector("fieldset").disabled, [...figure.querySelectorAll("td")].map(cell => cell.textContent)]);
    }"""
    for figure, (disabled, kept) in zip(found, page.evaluate(as_written) if found else []):
        tables = figure.locator(".halves")
        page.wait_for_function("f => 'runs' in f.dataset", arg=figure.element_handle())
        assert disabled, "nothing can be chosen before the module is there"
        assert kept and figure.locator("td").all_text_contents() == kept, "the module says what the crate said"
        for select in figure.locator("select").all():
            name = select.get_attribute("name")
            first = select.input_value()
            said = set()
            for value in select.evaluate("s => [...s.options].map(o => o.value)"):
                select.select_option(value)
                page.wait_for_function("f => !f.hasAttribute('aria-busy')", arg=figure.element_handle())
                said.add(tables.inner_text() + figure.locator(".problem").inner_text())
            # Of guesses nothing is seen while there are none.
            assert len(said) > 1 or name in ("acceptance", "draft_cost"), f"{name} changes nothing"
            select.select_option(first)
    return len(found)


def questions(page: Page, most: int | None) -> int:
    """Answers questions, first wrong where that can be told, then right."""
    found = page.locator(".question").all()[:most]
    for question in found:
        answer = question.get_attribute("data-answer")
        is_open = "q => q.querySelector('details').open"
        said = question.get_by_role("status")
        typed = question.locator("input[type=text]")
        if typed.count():
            for given, right in [(str(float(answer) * 3 + 7), False), (answer, True)]:
                typed.fill(given)
                typed.blur()
                assert question.locator(".is-right").count() == right, f"{given} for {answer}"
                assert question.evaluate(is_open) == right
                assert said.text_content() == ("Right" if right else "Not right")
            written(question, typed, float(answer))
        else:
            wrong = question.locator(f"input:not([value='{answer}'])").first
            wrong.check()
            assert question.locator(".is-wrong").count() == 1
            assert said.text_content() == "Not right"
            assert not question.evaluate(is_open), "a wrong answer does not tell the right one"
            question.locator(f"input[value='{answer}']").check()
            assert question.locator(".is-right").count() == 1
            assert question.evaluate(is_open)
            assert said.text_content() == "Right"
    return len(found)


def written(question: Locator, typed: Locator, answer: float) -> None:
    """Types a number as people write it: with its unit, a comma, another minus. What is none, or gone, has no verdict."""
    unit = question.locator(".typed span").text_content()
    plain = f"{answer:.10f}".rstrip("0").rstrip(".")
    forms = [f"{plain} {unit}", plain + unit, plain.replace("-", "\u2212"), plain.replace("-", "\u2013 ")]
    # "1,125" would be more than a thousand.
    if len(plain.partition(".")[2]) != 3 or plain.startswith(("0.", "-0.")):
        forms.append(plain.replace(".", ","))
    if answer.is_integer():
        forms += [f"{answer:,.0f}", f"{answer:,.0f}".replace(",", " ")]
    verdicts = [
        *((form, "Right") for form in forms),
        ("some", "Not a number"),
        (f"{plain} furlongs", "Not a number in the unit beside the field"),
        (plain, "Right"),
        ("", ""),
    ]
    found = typed.evaluate("""(field, all) => all.map(given => {
        field.value = given;
        for (const event of ["input", "change"]) field.dispatchEvent(new Event(event));
        const question = field.closest(".question");
        return [question.querySelector(".said").textContent, question.querySelectorAll(".is-right, .is-wrong").length];
    })""", [given for given, _ in verdicts])
    for (given, verdict), (said, marked) in zip(verdicts, found):
        assert (said, marked) == (verdict, int(verdict == "Right")), f"{given}: {said!r}, expected {verdict!r}"


def without_scripts(browser: Browser, address: str, name: str) -> None:
    """Where nothing answers, nothing can be chosen."""
    page = browser.new_page(java_script_enabled=False)
    page.goto(address + name)
    for select in page.locator("figure.simulated select").all():
        assert select.is_disabled(), "a control can be moved, and nothing comes of it"
    page.close()


def without_webassembly(browser: Browser, address: str, name: str) -> None:
    """Where the module does not run, the figure says so."""
    page = browser.new_page()
    page.add_init_script("delete globalThis.WebAssembly")
    page.goto(address + name)
    for figure in page.locator("figure.simulated").all():
        figure.locator(".problem", has_text="does not run in this browser").wait_for()
        assert figure.locator("select").first.is_disabled()
    page.close()


def answered_at_once(page: Page) -> bool:
    """Answers every question rightly, and asks only then whether each is answered, its choice kept."""
    return page.evaluate("""() => {
        const questions = [...document.querySelectorAll(".question")];
        const answers = questions.map(question => {
            const right = `input[type=radio][value="${question.dataset.answer}"]`;
            return question.querySelector("input[type=text]") ?? question.querySelector(right);
        });
        for (const [i, answer] of answers.entries()) {
            if (answer.type === "radio") answer.checked = true;
            else answer.value = questions[i].dataset.answer;
            answer.dispatchEvent(new Event("change"));
        }
        return questions.every((question, i) =>
            question.querySelector(".is-right") && (answers[i].type === "text" || answers[i].checked));
    }""")


def look(page: Page, address: str, name: str, shots: pathlib.Path | None) -> tuple[int, int, int]:
    problems = []
    page.on("pageerror", lambda error: problems.append(f"a script failed: {error}"))
    page.on("requestfailed", lambda request: problems.append(f"not loaded: {request.url}"))
    page.on("response", lambda r: r.status >= 400 and problems.append(f"{r.status}: {r.url}"))
    own = (address, "data:", "blob:")
    page.on("request", lambda r: r.url.startswith(own) or problems.append(f"asked for {r.url}"))
    page.goto(address + name, wait_until="load")
    width, screen = page.evaluate(UNFOLDED)
    if width > screen:
        problems.append(f"{width} pixels wide on a screen of {screen}")
    problems.extend(page.evaluate(LABELS))
    if shots:
        file = f"{name.removesuffix('.html').replace('/', '-')}-{screen}.png"
        page.screenshot(path=shots / file, full_page=True)
    problems.extend(f"{twin} occurs twice" for twin in twins(page))
    most = 1 if name == ALL_PAGES else None
    done = steppers(page, most), questions(page, most), simulators(page, most)
    if not answered_at_once(page):
        problems.append("a question has lost its answer to another")
    assert not problems, "; ".join(problems)
    return done


def at_width(folder: pathlib.Path, names: list[str], shots: pathlib.Path | None, width: int) -> tuple[int, int, int, int]:
    """All pages on one width: how many failed, and how many steppers, questions and simulators there were."""
    address, failed, stepped, asked, moved = serve(folder), 0, 0, 0, 0
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        for name in names:
            page = browser.new_page(viewport={"width": width, "height": 900})
            try:
                found = look(page, address, name, shots)
                stepped, asked, moved = stepped + found[0], asked + found[1], moved + found[2]
                if found[2]:
                    without_scripts(browser, address, name)
                    without_webassembly(browser, address, name)
            except AssertionError as problem:
                failed += 1
                print(f"{name}, {width} pixels: {problem}", file=sys.stderr)
            page.close()
        browser.close()
    return failed, stepped, asked, moved


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    shots = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    # One is for a page that is not there, the other holds the contents for browsers without scripts.
    names = [name for name in names if name not in ("404.html", "toc.html")]
    with ProcessPoolExecutor(len(WIDTHS)) as processes:
        found = processes.map(functools.partial(at_width, folder, names, shots), WIDTHS)
        failed, stepped, asked, moved = map(sum, zip(*found))
    if not (stepped and asked and moved):
        failed += 1
        print("no stepper, question or simulator was found: this check looks in the wrong place", file=sys.stderr)
    print(f"{len(names)} pages at {len(WIDTHS)} widths, {stepped} steppers, {asked} questions, {moved} simulators")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
