#!/usr/bin/env python3
"""One text and eight, decoded while other programs want the cores, too: every raw sample as one JSON object.

    beside_programs.py --ladder target/release/ladder --before target/before/ladder --llama llama.cpp/build/bin \
        --threads 2 --rounds 5 --json docs/measurements/beside_programs.json q8_0=q8_0.gguf

The other programs are loops that never sleep, of the same priority as a server or of the lowest. Each round asks llama.cpp, another
build of this project and this one for one sample of each load.
"""

import subprocess
import sys

import beside
from beside_llama import llama

TEXTS = {"one text": 1, "8 texts": 8}

# How many, and how nice they are.
PROGRAMS = {
    "alone": (0, 0),
    "1 other program": (1, 0),
    "2 other programs": (2, 0),
    "2 of the lowest priority": (2, 19),
}

LOADS = {
    f"{texts}, {programs}": dict(prefill=0, decode=64, depth=16, batch=batch, programs=count, nice=nice)
    for texts, batch in TEXTS.items()
    for programs, (count, nice) in PROGRAMS.items()
}

SIDES = [["llama.cpp"], "here, before", "here"]


class Others:
    """Programs that want a core each, until they are no longer needed."""

    def __init__(self, count, nice):
        busy = ["nice", "-n", str(nice), sys.executable, "-c", "while True: pass"]
        self.processes = [subprocess.Popen(busy) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    arguments = beside.parser(__doc__)
    arguments.add_argument("--llama", required=True, help="folder of llama.cpp's programs")
    arguments.add_argument("--before", required=True, help="the other build's ladder")
    options = arguments.parse_args()
    after = options.ladder

    def sample(file, load, keep):
        with Others(load["programs"], load["nice"]):
            keep(SIDES[0][0], llama(options, file, load, "on"))
            for side, options.ladder in zip(SIDES[1:], [options.before, after]):
                report, one = beside.ladder(options, file, load, load["depth"], "bf16")
                keep(side, one["decode_tokens_per_second"][1])
        return report["machine"]

    beside.compare(options, LOADS, SIDES, sample)


if __name__ == "__main__":
    main()
