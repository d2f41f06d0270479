"""The documentation that ships with Rust, as plain text (MIT OR Apache-2.0).

Reads the HTML that rustup installs as the component rust-docs and keeps prose and code. The embedded
book is left out: its licence, CC-BY-SA, would pass to the weights.
"""

import random
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

# Folders of share/doc/rust/html. The standard library's own pages are left out: they repeat
# themselves a thousand times, trait by trait.
BOOKS = [
    "book", "reference", "rust-by-example", "cargo", "nomicon", "edition-guide", "rustc", "rustdoc",
    "unstable-book", "style-guide", "clippy", "error_codes",
]
# Whole books on one page, tables of contents and their like: text that the other pages have too.
REPEATED_PAGES = {"print.html", "toc.html", "404.html", "all.html"}
SKIPPED_TAGS = {"script", "style", "nav", "button", "svg", "head", "select", "noscript"}
HELD_OUT_CHARACTERS = 300_000


class TextOfPage(HTMLParser):
    """Collects the text inside <main>, with Markdown's marks for headings, lists and code."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.pieces = []
        self.main_depth = 0
        self.skip_depth = 0
        self.pre_depth = 0
        self.spans_skipped = []  # for each open <span>: does it hide its text?

    def handle_starttag(self, tag, attributes):
        css_class = dict(attributes).get("class") or ""
        if tag == "main":
            self.main_depth += 1
        elif tag in SKIPPED_TAGS:
            self.skip_depth += 1
        elif tag == "pre":
            self.pre_depth += 1
            self.pieces.append("\n```\n")
        elif tag in ("h1", "h2", "h3", "h4"):
            self.pieces.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag in ("p", "tr", "blockquote", "div", "ul", "ol"):
            self.pieces.append("\n")
        elif tag == "code" and not self.pre_depth:
            self.pieces.append("`")
        elif tag == "span":
            # mdBook calls the lines of a listing that it folds away "boring".
            self.spans_skipped.append("boring" in css_class)
            self.skip_depth += self.spans_skipped[-1]

    def handle_endtag(self, tag):
        if tag == "main":
            self.main_depth -= 1
        elif tag in SKIPPED_TAGS and self.skip_depth:
            self.skip_depth -= 1
        elif tag == "pre":
            self.pre_depth -= 1
            self.pieces.append("\n```\n")
        elif tag == "code" and not self.pre_depth:
            self.pieces.append("`")
        elif tag in ("p", "h1", "h2", "h3", "h4"):
            self.pieces.append("\n")
        elif tag == "span" and self.spans_skipped:
            self.skip_depth -= self.spans_skipped.pop()

    def handle_data(self, data):
        if self.main_depth and not self.skip_depth:
            self.pieces.append(data if self.pre_depth else re.sub(r"\s+", " ", data))

    def text(self):
        text = re.sub(r"[ \t]+\n", "\n", "".join(self.pieces))
        return re.sub(r"\n{3,}", "\n\n", text).strip()


def pages(html: Path):
    """The text of every page worth having, in a fixed order."""
    for book in BOOKS:
        for path in sorted((html / book).rglob("*.html")):
            if path.name in REPEATED_PAGES or "translations" in str(path):
                continue
            source = path.read_text(encoding="utf-8", errors="replace")
            if 'http-equiv="refresh"' in source[:2000]:
                continue
            page = TextOfPage()
            page.feed(source)
            text = page.text()
            if "no longer distributed" not in text:
                yield text


def without_repeats(texts):
    """Drops every long paragraph that an earlier page had, then pages with little left."""
    seen = set()
    for text in texts:
        kept = []
        for paragraph in text.split("\n\n"):
            if len(paragraph) > 120:
                if paragraph in seen:
                    continue
                seen.add(paragraph)
            kept.append(paragraph)
        text = "\n\n".join(kept).strip()
        if len(text) > 400:
            yield text


def extract():
    """(training pages, held-out pages) of the installed Rust, split at random by whole pages."""
    sysroot = subprocess.run(
        ["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True
    ).stdout.strip()
    html = Path(sysroot) / "share/doc/rust/html"
    if not (html / "book").is_dir():
        raise SystemExit(f"{html} holds no documentation: run `rustup component add rust-docs`")
    texts = list(without_repeats(pages(html)))
    random.Random(0).shuffle(texts)
    held_out, characters = [], 0
    while characters < HELD_OUT_CHARACTERS:
        held_out.append(texts.pop())
        characters += len(held_out[-1])
    return texts, held_out
