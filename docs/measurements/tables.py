#!/usr/bin/env python3
"""Tables of benches.md, made of their samples: `tables.py`, or `tables.py --check`, which fails where one is not.

A table that follows a line like `<!-- beside_llama.json -->` has its rows made of that file. Its own head says which sides
it shows. Rates are medians; a ratio, how many times as fast this project was, is the median of all rounds' own.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

from beside import LLAMA, faster, ratio

PAGE = pathlib.Path(__file__).with_name("benches.md")
TABLE = re.compile(r"<!-- (\S+\.json) -->\n\n(\|.*\n)(\|.*\n)((?:\|.*\n)*)")
# What a column is called, and what its samples are, where that is not the same.
CALLED = {"OpenVINO": ["OpenVINO GenAI"], "here": ["here, bf16 keys and values"]}


def samples_of(column, kept):
    """A side's samples of one load, round by round; None where it has none."""
    sides = LLAMA if column in ("llama.cpp", "llama.cpp, BF16") else CALLED.get(column, [column.replace("K/V", "keys and values")])
    return faster(kept, sides) if sides[0] in kept else None


def cell(column, first, kept):
    """A rate, and beside all columns but the first its ratio."""
    rates, others = samples_of(column, kept), samples_of(first, kept)
    if rates is None:
        return ""
    rate = f"{statistics.median(rates):,.0f}"
    if column == first:
        return rate
    # One of the two is this project, or both are the peer.
    ours, theirs = (others, rates) if first.startswith("here") else (rates, others)
    return f"{rate} ({ratio(ours, theirs):.2f}x)"


def made(table):
    """The same table with rows of its samples."""
    file, head, rule, _ = table.groups()
    titles = [title.strip() for title in head.strip().strip("|").split("|")]
    files, columns = "file" in titles, titles[titles.index("load") + 1:]
    rows, all_kept = "", json.loads(PAGE.with_name(file).read_text())["samples"]
    for column in columns:
        if all(samples_of(column, kept) is None for kept in all_kept.values()):
            sys.exit(f"{file} has no side called {column!r}")
    for what, kept in all_kept.items():
        name, load = what.split(": ", 1)
        cells = ([name.upper()] if files else []) + [load] + [cell(column, columns[0], kept) for column in columns]
        rows += f"| {' | '.join(cells)} |\n"
    return f"<!-- {file} -->\n\n{head}{rule}{rows}"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="change nothing")
    page = PAGE.read_text()
    text, tables = TABLE.subn(made, page)
    said = page.count("<!-- ") # each says of which samples the table behind it is
    if tables == 0 or tables != said:
        sys.exit(f"{PAGE} says {said} times of which samples a table is, and has {tables} such tables")
    if options.parse_args().check:
        if text != page:
            sys.exit(f"{PAGE}: a table is not what its samples make of it; run docs/measurements/tables.py")
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
