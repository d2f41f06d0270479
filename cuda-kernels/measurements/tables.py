"""The tables of measurements/README.md from what `ladder gpu-check` wrote: medians, with the fastest peer of the same run.

Usage: python3 tables.py h200
"""

import json
import pathlib
import sys
from statistics import median

PEERS = {"sdpa_flash": "FlashAttention", "sdpa_cudnn": "cuDNN", "sdpa_efficient": "PyTorch's own", "matmul": "cuBLAS"}


def by_shape(timed):
    """Median seconds by name, for each shape, in the order of the file; flops and bytes of ours."""
    shapes = {}
    for entry in timed:
        if "seconds" not in entry:  # a backend that does not take the shape
            continue
        shape = shapes.setdefault(json.dumps(entry["shape"], sort_keys=True), {"shape": entry["shape"], "times": {}})
        shape["times"][entry["name"]] = median(entry["seconds"])
        shape.update({key: entry[key] for key in ("flops", "bytes") if key in entry})
    return shapes


def table(columns, rows):
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def beside(time, peers):
    """The fastest peer in microseconds, and how many times as fast as it this is."""
    if not peers:
        return ["", ""]
    name = min(peers, key=peers.get)
    return [f"{PEERS[name]} {peers[name] * 1e6:.1f}", f"{peers[name] / time:.2f}x"]


def main(folder):
    read = lambda name: json.loads((pathlib.Path(folder) / f"{name}.json").read_text())
    ours, peers = by_shape(read("kernels_timed")), by_shape(read("peers")["timed"])
    copy = next(s for s in ours.values() if s["shape"]["kind"] == "copy")
    bandwidth = copy["bytes"] / copy["times"]["copy"]
    print(f"A copy: {bandwidth / 1e9:.0f} GB/s, bytes read and bytes written.\n")

    def rows(kind, row):
        for key, entry in ours.items():
            if entry["shape"]["kind"] == kind:
                for name, time in entry["times"].items():
                    yield row(entry, entry["shape"], name, time) + beside(time, peers.get(key, {}).get("times"))

    heads = lambda s: f"{s['heads']} of {s['head_dim']}"
    teraflops = lambda entry, time: f"{entry['flops'] / time / 1e12:.0f}"
    speed = lambda entry, time: [f"{entry['bytes'] / time / 1e9:.0f}", f"{entry['bytes'] / time / bandwidth:.0%}"]
    table(
        ["tokens", "heads", "causal", "kernel", "us", "TFLOP/s", "fastest of PyTorch's, us", "ratio"],
        rows("prefill", lambda e, s, name, time: [
            s["tokens"], heads(s), "yes" if s["is_causal"] else "no", f"`{name}`", f"{time * 1e6:.1f}", teraflops(e, time)]))
    table(
        ["requests", "keys", "heads", "kernel", "us", "GB/s", "of the copy's", "fastest of PyTorch's, us", "ratio"],
        rows("decode", lambda e, s, name, time: [
            s["batch"], s["keys"], f"{heads(s)}, {s['kv_heads']} KV", f"`{name}`", f"{time * 1e6:.1f}", *speed(e, time)]))
    table(
        ["requests", "latents", "heads", "kernel", "us", "GB/s", "of the copy's", "TFLOP/s"],
        (row[:-2] for row in rows("mla", lambda e, s, name, time: [
            s["batch"], s["keys"], s["heads"], f"`{name}`", f"{time * 1e6:.1f}", *speed(e, time), teraflops(e, time)])))
    table(
        ["rows", "outputs", "inputs", "kernel", "us", "GB/s", "TFLOP/s", "PyTorch's, us", "ratio"],
        rows("gemm", lambda e, s, name, time: [
            s["rows"], s["outputs"], s["inputs"], f"`{name}`", f"{time * 1e6:.1f}", speed(e, time)[0], teraflops(e, time)]))

    def step(entry):
        time, read = median(entry["seconds"]), entry["weight_bytes"] + entry["kv_bytes"]
        launched = "a graph" if entry["with_graphs"] else "one by one"
        return [entry["name"], entry["batch"], launched, f"{time * 1e6:.0f}", f"{entry['batch'] / time:.0f}",
                f"{read / time / bandwidth:.0%}"]

    table(["model", "texts", "launched as", "us a step", "tokens/s", "of the copy's rate, weights and keys and values"],
          map(step, read("decode_timed")))


if __name__ == "__main__":
    main(sys.argv[1])
