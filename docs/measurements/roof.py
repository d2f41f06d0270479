"""How much of the memory's bandwidth decoding comes to, weights, keys and values counted, far into a text.

    python3 docs/measurements/roof.py --ladder target/release/ladder --threads 2 --rounds 5 --json roof.json q8_0=q8_0.gguf

`ladder bench` reads a stretch of memory before each sample. A sample's share of the roof is what its tokens read a second
over what that stretch came in at. One sample after 64 tokens behind each depth, for each type of keys and values, in turns.
"""

import statistics
import sys

import beside

LOADS = {f"depth {depth:,}": dict(prefill=0, decode=64, depth=depth, batch=1) for depth in [0, 2048]}
KINDS = ["f32", "bf16", "int8"]


def main():
    options = beside.parser(__doc__).parse_args()
    samples, machine = {}, None
    for turn in range(options.rounds):
        for name, file in (file.split("=", 1) for file in options.files):
            for what, load in LOADS.items():
                for kv in KINDS:
                    report, run = beside.ladder(options, file, load, load["depth"], kv)
                    held = load["depth"] + load["decode"] / 2
                    read = run["weight_bytes"] + run["kv_bytes_per_token"] * held
                    rate, probe = run["decode_tokens_per_second"][1], report["bandwidth_gb_per_s"][1]
                    kept = samples.setdefault(f"{name}, {what}, {kv} keys and values", [])
                    kept.append(dict(tokens_per_second=rate, bytes_per_token=read, memory_gb_per_second=probe))
                    machine = report["machine"]
            print(f"round {turn + 1} of {options.rounds}: {name}", file=sys.stderr)
    beside.keep(options, machine, samples)
    for what, kept in samples.items():
        shares = [one["tokens_per_second"] * one["bytes_per_token"] / 1e9 / one["memory_gb_per_second"] for one in kept]
        rate = statistics.median(one["tokens_per_second"] for one in kept)
        print(f"{what:45} {rate:6.0f} tokens/s  {statistics.median(shares):5.0%} of the roof")


if __name__ == "__main__":
    main()
