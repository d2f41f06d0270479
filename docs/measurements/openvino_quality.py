#!/usr/bin/env python3
"""How near OpenVINO's predictions are to those of the same file in f32: every raw sample as one JSON object.

    pip install openvino-genai==2026.4.1.0 numpy
    cargo run --release -p gqa-mla --example judge_texts -- --model q8_0.gguf > texts.json
    openvino_quality.py --texts texts.json --json docs/measurements/openvino_quality.json q8_0=q8_0.gguf q4_0=q4_0.gguf

The texts and what is measured along the second half of each are those of `measure_weights`: nats of the token that comes
next, KL divergence from the judge, and how often the likeliest token is the same. The judge is OpenVINO with everything in
f32. That its nats are those of `measure_weights --model` with the same file says that both judge the same thing.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile

import numpy
import openvino
import openvino_genai

# Nothing is lost but what the file itself has lost.
EXACT = dict(INFERENCE_PRECISION_HINT="f32", KV_CACHE_PRECISION="f32", DYNAMIC_QUANTIZATION_GROUP_SIZE=0)


def logits(core, model, settings, texts):
    """Log-probabilities after each token of a text's second half but the last, and how OpenVINO says that it ran."""
    compiled = core.compile_model(model, "CPU", settings)
    kept = {name: str(compiled.get_property(name)) for name in EXACT}
    request = compiled.create_infer_request()
    along = []
    for text in texts:
        request.reset_state()
        tokens = numpy.array([text[:-1]], dtype=numpy.int64)
        rows = tokens.shape[1]
        request.infer(
            dict(
                input_ids=tokens,
                attention_mask=numpy.ones_like(tokens),
                position_ids=numpy.arange(rows, dtype=numpy.int64)[None],
                beam_idx=numpy.zeros(1, dtype=numpy.int32),
            )
        )
        found = request.get_tensor("logits").data[0, rows // 2 :].astype(numpy.float64)
        found -= found.max(axis=1, keepdims=True)
        along.append(found - numpy.log(numpy.exp(found).sum(axis=1, keepdims=True)))
    return along, kept


def compare(texts, full, along):
    """What is measured, a sample for each text."""
    measured = {"nats": [], "KL": [], "same token": []}
    for text, p, q in zip(texts, full, along, strict=True):
        following = numpy.array(text[len(text) - len(q) :])
        measured["nats"].append(-q[numpy.arange(len(q)), following].mean())
        measured["KL"].append((numpy.exp(p) * (p - q)).sum(axis=1).mean())
        measured["same token"].append(100.0 * (p.argmax(axis=1) == q.argmax(axis=1)).mean())
    return {figure: [float(sample) for sample in samples] for figure, samples in measured.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--texts", required=True, help="what `judge_texts` prints")
    arguments.add_argument("--json", help="where to write the samples")
    arguments.add_argument("files", nargs="+", metavar="NAME=FILE.gguf")
    options = arguments.parse_args()
    with open(options.texts) as file:
        texts = json.load(file)
    core = openvino.Core()

    def read(path):
        """OpenVINO's model of a GGUF file: only its pipelines read one, and write it down beside the file."""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(path), f"{folder}/model.gguf")
            openvino_genai.LLMPipeline(f"{folder}/model.gguf", "CPU", enable_save_ov_model=True)
            model = core.read_model(f"{folder}/openvino_model.xml")
            return model.clone()

    samples, ran = {}, {}
    for name, path in (file.split("=", 1) for file in options.files):
        model = read(path)
        full, _ = logits(core, model, EXACT, texts)
        for way, settings in (("in f32", EXACT), ("unless told otherwise", {})):
            what = f"{name}, {way}"
            along, ran[what] = logits(core, model, settings, texts)
            samples[what] = compare(texts, full, along)
            nats, apart, same = (statistics.mean(samples[what][figure]) for figure in ("nats", "KL", "same token"))
            print(f"{what:28} {nats:.4f} nats, {apart:.5f} from f32, {same:.1f} % the same")
    machine = core.get_property("CPU", "FULL_DEVICE_NAME")
    report = dict(machine=machine, system=platform.platform(), openvino=openvino.__version__, ran=ran, samples=samples)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(report, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
