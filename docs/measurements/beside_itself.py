#!/usr/bin/env python3
"""Two builds of this project, in turn, on the same files: every raw sample as one JSON object.

    beside_itself.py --before target/before/ladder --ladder target/release/ladder --threads 2 --rounds 5 \
        --weights int8 --json samples.json q8_0=q8_0.gguf

For a change whose worth only whole prompts and whole tokens show.
"""

import os

import beside

# How fast a file becomes packed weights is measured with the least of prompts.
LOADING = "loading, MB of the file"

LOADS = {
    LOADING: dict(prefill=8, decode=0, depth=0, batch=1),
    "prefill 512": dict(prefill=512, decode=0, depth=0, batch=1),
    "decode 128": dict(prefill=0, decode=128, depth=0, batch=1),
    "decode 64 at depth 2,048": dict(prefill=0, decode=64, depth=2048, batch=1),
    "prompts, 32 together, 128 each": dict(prefill=128, decode=0, depth=0, batch=32),
    "decode, 32 together, depth 128": dict(prefill=0, decode=64, depth=128, batch=32),
}

SIDES = [["before"], "after"]


def main():
    arguments = beside.parser(__doc__)
    arguments.add_argument("--before", required=True, help="the other build's ladder")
    arguments.add_argument("--kv", default="bf16", help="what both keep keys and values as")
    options = arguments.parse_args()
    after = options.ladder

    def sample(file, load, keep):
        for side, options.ladder in zip(["before", "after"], [options.before, after]):
            report, one = beside.ladder(options, file, load, load["depth"], options.kv)
            _, rate = one["prefill_tokens_per_second"] + one["decode_tokens_per_second"]
            keep(side, os.path.getsize(file) / 1e3 / one["load_ms"] if load is LOADS[LOADING] else rate)
        return report["machine"]

    beside.compare(options, LOADS, SIDES, sample)


if __name__ == "__main__":
    main()
