#!/usr/bin/env python3
"""This project's bench and OpenVINO GenAI, in turn, on the same files: every raw sample as one JSON object.

    pip install openvino-genai==2026.4.1.0
    beside_openvino.py --ladder target/release/ladder --threads 2 --rounds 5 \
        --json docs/measurements/beside_openvino.json q8_0=q8_0.gguf q4_0=q4_0.gguf

OpenVINO was the fastest peer at reading prompts. It takes a GGUF file as it is, and each sample of it is a process of
its own that first runs the load once unmeasured, as this project's bench does.
"""

import argparse
import json
import sys
import time

import beside

# Prompt, tokens generated, sequences side by side. What is measured: tokens read a second; tokens generated a second
# after the first; tokens generated over all time, prompts included.
LOADS = {
    "prefill 512": dict(prefill=512, decode=1, batch=1),
    "decode 128": dict(prefill=8, decode=128, batch=1),
    "32 together, 128 in, 128 out": dict(prefill=128, decode=128, batch=32),
}

KEYS_AND_VALUES = ["bf16-fast", "bf16", "int8"]
SIDES = [["OpenVINO GenAI"]] + [f"here, {kv} keys and values" for kv in KEYS_AND_VALUES]


def peer(options, file, load):
    """One sample of OpenVINO, in this process."""
    import openvino_genai

    pipeline = openvino_genai.LLMPipeline(file, "CPU", INFERENCE_NUM_THREADS=options.threads)
    tokenizer = pipeline.get_tokenizer()
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = load["decode"]
    config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False

    def prompts(turn):
        # No two begin alike, so that nothing is left over from one for another.
        texts = [f"{chr(65 + (turn + i) % 26)}{turn}{i}" for i in range(load["batch"])]
        made = []
        for text in texts:
            short = load["prefill"] - tokenizer.encode(text).input_ids.shape[1]
            made.append(text + " the" * max(short, 0))
        return made

    pipeline.generate(prompts(1), config)
    began = time.perf_counter()
    metrics = pipeline.generate(prompts(2), config).perf_metrics
    seconds = time.perf_counter() - began
    if load["batch"] > 1:
        return load["batch"] * load["decode"] / seconds
    if load["decode"] > 1:
        return 1000 / metrics.get_tpot().mean
    return 1000 * metrics.get_num_input_tokens() / metrics.get_ttft().mean


def openvino(options, file, load):
    command = [sys.executable, __file__, "--threads", str(options.threads), "--peer", json.dumps(load), file]
    return float(beside.run(*command).splitlines()[-1])


def ladder(options, file, load, kv):
    report, one = beside.ladder(options, file, load, load["prefill"], kv)
    _, read = one["prefill_tokens_per_second"]
    _, generated = one["decode_tokens_per_second"]
    rate = generated if load["decode"] > 1 else read
    if load["batch"] > 1:
        # Reading all prompts gives the first token of each.
        seconds = load["batch"] * (load["prefill"] / read + (load["decode"] - 1) / generated)
        rate = load["batch"] * load["decode"] / seconds
    return rate, report["machine"]


def main():
    arguments = beside.parser(__doc__)
    arguments.add_argument("--peer", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peer:
        print(peer(options, options.files[0], json.loads(options.peer)))
        return

    def sample(file, load, keep):
        keep(SIDES[0][0], openvino(options, file, load))
        for side, kv in zip(SIDES[1:], KEYS_AND_VALUES):
            rate, machine = ladder(options, file, load, kv)
            keep(side, rate)
        return machine

    beside.compare(options, LOADS, SIDES, sample)


if __name__ == "__main__":
    main()
