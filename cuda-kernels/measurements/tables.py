"""The tables of measurements/README.md from what `ladder gpu-check` wrote: medians, with the fastest peer of the same run.

Usage: python3 tables.py h200
       python3 tables.py h200 --book > h200_book.json     (what the book's plots are drawn from)
"""

import datetime
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


def book(folder):
    """Samples as the book reads them: of each series, its points, and of each point all samples."""
    read = lambda name: json.loads((pathlib.Path(folder) / f"{name}.json").read_text())
    ours, peers, machine = read("kernels_timed"), read("peers"), read("machine")
    flops = {json.dumps(entry["shape"], sort_keys=True): entry["flops"] for entry in ours}

    def prompts(name, timed, kernel, head_dim):
        points = []
        for entry in timed:
            shape = entry["shape"]
            if shape["kind"] == "prefill" and shape["is_causal"] and shape["head_dim"] == head_dim and entry["name"] == kernel:
                work = flops[json.dumps(shape, sort_keys=True)]
                points.append([shape["tokens"], [work / seconds / 1e12 for seconds in entry["seconds"]]])
        return {"name": f"{name}, heads of {head_dim}", "unit": "TFLOP/s", "points": points}

    def steps(name, with_graphs):
        chosen = [s for s in read("decode_timed") if s["name"] == "1B" and s["with_graphs"] == with_graphs]
        return {"name": name, "unit": "ms", "points": [[s["batch"], [1e3 * seconds for seconds in s["seconds"]]] for s in chosen]}

    def rates(name, timed, kind, kernel):
        wanted = [t for t in timed if t["shape"]["kind"] == kind and t["name"] == kernel and t["shape"].get("head_dim") in (None, 128)]
        moved = {json.dumps(entry["shape"], sort_keys=True): entry["bytes"] for entry in ours}
        points = [[t["shape"].get("batch", 1), [moved[json.dumps(t["shape"], sort_keys=True)] / s / 1e12 for s in t["seconds"]]] for t in wanted]
        return {"name": name, "unit": "TB/s", "points": points}

    kernels = [("step 6", ours, "attention_06_hopper"), ("paged, Hopper's", ours, "paged_prefill_hopper"),
               ("paged", ours, "paged_prefill"), ("cuDNN", peers["timed"], "sdpa_cudnn"), ("FlashAttention-2", peers["timed"], "sdpa_flash")]
    series = [prompts(*kernel, head_dim) for head_dim in (64, 128) for kernel in kernels]
    series += [steps("a step from a graph", True), steps("a step, launched one by one", False)]
    series += [rates("a copy", ours, "copy", "copy"), rates("paged decoding", ours, "decode", "paged_decode"),
               rates("decoding by cuDNN", peers["timed"], "decode", "sdpa_cudnn")]
    date = datetime.datetime.fromtimestamp(machine["began"], datetime.timezone.utc).date().isoformat()
    kept = {
        "machine": {"cpu": machine["gpu"], "peers": f"PyTorch {peers['machine']['torch']}", "date": date},
        "command": "cargo ladder gpu-check --out DIR",
        "series": series,
    }
    print(json.dumps(kept, indent=1))


if __name__ == "__main__":
    book(sys.argv[1]) if sys.argv[2:] == ["--book"] else main(sys.argv[1])
