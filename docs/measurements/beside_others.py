#!/usr/bin/env python3
"""This project's bench, candle's quantised Llama, mistral.rs, llama2.c and transformers, in turn, on the same file: every raw
sample as one JSON object.

    cargo build --release --manifest-path docs/measurements/beside_candle/Cargo.toml
    pip install mistralrs torch transformers gguf
    git clone https://github.com/karpathy/llama2.c && make -C llama2.c runomp
    beside_others.py --ladder target/release/ladder --candle docs/measurements/beside_candle/target/release/candle-llama \
        --llama2c llama2.c --python venv/bin/python --threads 2 --rounds 3 \
        --json docs/measurements/beside_others.json q8_0=q8_0.gguf

candle comes as a library, and `beside_candle` asks it for tokens. transformers and llama2.c make of the file's weights what they
keep; llama2.c reads a prompt as it writes, token by token.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import beside

LOADS = {
    "prefill 512": dict(prefill=512, decode=0, depth=0, batch=1),
    "decode 128": dict(prefill=0, decode=128, depth=0, batch=1),
}

OURS = "here, bf16 keys and values"

# Each prints one JSON object, {"prefill 512": tokens a second, "decode 128": ...}, of its second time.
MISTRAL = """
import json, os, sys
folder, name = os.path.split(sys.argv[1])
from mistralrs import CompletionRequest, Runner, Which
runner = Runner(which=Which.GGUF(quantized_model_id=folder, quantized_filename=name))
def ask(prompt, tokens):
    request = CompletionRequest(model="default", prompt=prompt, max_tokens=tokens, temperature=0.0)
    return runner.send_completion_request(request).usage
rates = {}
for start in "ab":
    usage = ask(start + " the" * 510, 1)
    rates["prefill 512"] = usage.avg_prompt_tok_per_sec
    usage = ask(start + " long story about the sea and the people who live near it.", 128)
    assert usage.completion_tokens > 100, usage.completion_tokens
    rates["decode 128"] = usage.avg_compl_tok_per_sec
print(json.dumps(rates))
"""

TRANSFORMERS = """
import json, os, sys, time
import torch
from transformers import AutoModelForCausalLM, GgufConfig
torch.set_num_threads(int(sys.argv[2]))
folder, name = os.path.split(sys.argv[1])
dense = GgufConfig(dequantize=True)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, quantization_config=dense, dtype=getattr(torch, sys.argv[3]))
prompt, rates = torch.arange(10, 522)[None], {}
with torch.inference_mode():
    for _ in range(2):
        began = time.perf_counter()
        model(prompt, logits_to_keep=1)
        rates["prefill 512"] = 512 / (time.perf_counter() - began)
        began = time.perf_counter()
        one = prompt[:, :1]
        model.generate(one, attention_mask=torch.ones_like(one), do_sample=False, min_new_tokens=128, max_new_tokens=128,
                       pad_token_id=2)
        rates["decode 128"] = 128 / (time.perf_counter() - began)
print(json.dumps(rates))
"""


def last(words):
    return json.loads(words.strip().splitlines()[-1])


def llama2c(program, model, tokens):
    """Rates of llama2.c, which counts from the second token on."""
    rates = {}
    for load, count in {"prefill 512": 512, "decode 128": 128}.items():
        command = [program, model, "-z", tokens, "-t", "0", "-n", str(count + 1), "-i", ""]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True)
        rates[load] = float(re.search(r"achieved tok/s: ([0-9.]+)", done.stderr)[1])
    return rates


def main():
    arguments = beside.parser(__doc__)
    arguments.add_argument("--candle", required=True, help="the program of beside_candle")
    arguments.add_argument("--llama2c", required=True, type=pathlib.Path, help="the folder of llama2.c, built with OpenMP")
    arguments.add_argument("--python", required=True, help="a Python that has the other peers")
    arguments.add_argument("--kv", default="bf16", help="what keys and values are kept as here")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as models:
        measure(options, pathlib.Path(models))


def measure(options, models):
    threads = str(options.threads)
    os.environ.update(RAYON_NUM_THREADS=threads, OMP_NUM_THREADS=threads, HF_HUB_OFFLINE="1")
    files = {name: str(pathlib.Path(file).resolve()) for name, file in (file.split("=", 1) for file in options.files)}
    write = str(pathlib.Path(__file__).with_name("llama2c_model.py"))
    for file in files.values():
        beside.run(options.python, write, file, str(models / pathlib.Path(file).stem))

    def of_llama2c(program, kept):
        def rates(file):
            model = models / pathlib.Path(file).stem
            return llama2c(str(options.llama2c / program), str(model / kept), str(model / "tokens.bin"))

        return rates

    peers = {
        "candle": lambda file: last(beside.run(options.candle, file, "512", "128")),
        "mistral.rs": lambda file: last(beside.run(options.python, "-c", MISTRAL, file)),
        "llama2.c, int8": of_llama2c("runq", "int8.bin"),
        "llama2.c, f32": of_llama2c("run", "f32.bin"),
        "transformers, BF16": lambda file: last(beside.run(options.python, "-c", TRANSFORMERS, file, threads, "bfloat16")),
        "transformers, f32": lambda file: last(beside.run(options.python, "-c", TRANSFORMERS, file, threads, "float32")),
    }
    samples, machine = {f"{name}: {load}": {} for name in files for load in LOADS}, None
    for turn in range(options.rounds):
        for name, file in files.items():
            sides = {peer: rates(file) for peer, rates in peers.items()}
            sides[OURS] = {}
            for load, sizes in LOADS.items():
                report, one = beside.ladder(options, file, sizes, 0, options.kv)
                _, sides[OURS][load] = one["prefill_tokens_per_second"] + one["decode_tokens_per_second"]
                machine = report["machine"]
            for load in LOADS:
                for side, rates in sides.items():
                    samples[f"{name}: {load}"].setdefault(side, []).append(rates[load])
            print(f"round {turn + 1} of {options.rounds}: {name}", file=beside.sys.stderr)
    beside.keep(options, machine, samples, unit="tokens a second")
    for what, kept in samples.items():
        ours, median = kept.pop(OURS), beside.statistics.median
        peers = ", ".join(f"{side} {median(rates):.0f} ({beside.ratio(ours, rates):.2f}x)" for side, rates in kept.items())
        print(f"{what:25} {median(ours):7.0f}; {peers}")


if __name__ == "__main__":
    main()
