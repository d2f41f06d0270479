#!/usr/bin/env python3
"""This project's bench and llama.cpp's, in turn, on the same files: every raw sample as one JSON object.

    beside_llama.py --ladder target/release/ladder --llama llama.cpp/build/bin --threads 2 --rounds 5 \
        --json docs/measurements/beside_llama.json q8_0=q8_0.gguf q4_0=q4_0.gguf bf16=bf16.gguf

Each round asks llama.cpp, then this project, for one sample of each load, so that both have the same quiet and
the same busy minutes. This project's bench reads memory before each sample; that rate stands beside it.
"""

import json

import beside

# prompt, tokens decoded, tokens before them, sequences side by side
LOADS = {
    "prefill 512": dict(prefill=512, decode=0, depth=0, batch=1),
    "decode 128": dict(prefill=0, decode=128, depth=0, batch=1),
    "decode 64 at depth 2,048": dict(prefill=0, decode=64, depth=2048, batch=1),
    "decode, 32 together, depth 128": dict(prefill=0, decode=64, depth=128, batch=32),
}

# Unless told otherwise llama.cpp keeps keys and values as f16; bf16 is as wide, and what the kernels here are for.
SIDES = [beside.LLAMA, "here, bf16 keys and values", "here, f32 keys and values"]

# Eight bits for each, and a scale, where keys and values count. llama.cpp keeps values so with flash attention only.
EIGHT_BITS = ["llama.cpp, q8_0 keys and values", "here, int8 keys and values"]


def ladder(options, file, load, kv):
    report, one = beside.ladder(options, file, load, load["depth"], kv)
    _, rate = one["prefill_tokens_per_second"] + one["decode_tokens_per_second"]
    return rate, report["bandwidth_gb_per_s"][1], report["machine"]


def llama(options, file, load, flash, kv="f16"):
    threads = str(options.threads)
    kept_as = ["-fa", flash, "-ctk", kv, "-ctv", kv]
    if load["batch"] > 1:
        words = beside.run(
            f"{options.llama}/llama-batched-bench", "-m", file, "-c", "16384", "-b", "2048", "-ub", "512",
            "-npp", str(load["depth"]), "-ntg", str(load["decode"]), "-npl", str(load["batch"]),
            "-t", threads, "-tb", threads, *kept_as, "--output-format", "jsonl")
        [line] = [line for line in words.splitlines() if line.startswith("{")]
        return json.loads(line)["speed_tg"]
    line = beside.run(
        f"{options.llama}/llama-bench", "-m", file, "-t", threads, "-r", "1", *kept_as, "-o", "jsonl",
        "-p", str(load["prefill"]), "-n", str(load["decode"]), "-d", str(load["depth"]))
    return json.loads(line.splitlines()[-1])["avg_ts"]


def main():
    arguments = beside.parser(__doc__)
    arguments.add_argument("--llama", required=True, help="folder of llama.cpp's programs")
    options = arguments.parse_args()

    def sample(file, load, keep):
        # With flash attention and without: the faster is the peer.
        for side, flash in zip(SIDES[0], ["on", "off"]):
            keep(side, llama(options, file, load, flash))
        ours = [(SIDES[1], "bf16"), (SIDES[2], "f32")]
        if load["depth"] > 0:
            keep(EIGHT_BITS[0], llama(options, file, load, "on", "q8_0"))
            ours.append((EIGHT_BITS[1], "int8"))
        for side, kv in ours:
            rate, gigabytes, machine = ladder(options, file, load, kv)
            keep(side, rate)
            keep("memory read, GB/s", gigabytes)
        return machine

    beside.compare(options, LOADS, SIDES + EIGHT_BITS, sample)


if __name__ == "__main__":
    main()
