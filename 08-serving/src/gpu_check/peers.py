"""Times the shapes of `ladder gpu-check` in PyTorch: its attention by several backends, its matrix products, a copy.

Usage: python3 peers.py shapes.json peers.json
"""

import json
import sys
import time
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SAMPLE_SECONDS = 0.02
BACKENDS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def samples(context, goes, count):
    """Seconds of one go. All goes, each over a copy of what is read, are recorded once as a graph and replayed, so that
    neither Python nor a launch is waited for and no cache holds what is read."""
    with context:
        # Libraries set themselves up on another stream, as recording asks for.
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for go in goes:
                go()
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for go in goes:
                go()

    def play(times):
        began = time.perf_counter()
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    play(1)
    times = max(1, min(2000, int(SAMPLE_SECONDS / play(1))))
    play(times)
    return [play(times) / (times * len(goes)) for _ in range(count)]


def random(*shape):
    return torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 2 - 1


def attention(queries, cached, **options):
    """One peer for each backend that takes these; `cached` has pairs of keys and values."""

    def go(keys, values):
        return lambda: scaled_dot_product_attention(queries, keys, values, **options)

    goes = [go(keys, values) for keys, values in cached]
    for name, backend in BACKENDS.items():
        yield name, sdpa_kernel(backend), goes


def works(shape, copies):
    """Name, the context to record in, and what to do, once for each copy of what is read from memory."""
    kind = shape["kind"]
    if kind == "copy":
        source = torch.empty(shape["bytes"], device="cuda", dtype=torch.uint8)
        target = torch.empty_like(source)
        yield "copy", nullcontext(), [lambda: target.copy_(source)]
    elif kind == "gemm":
        x = random(shape["rows"], shape["inputs"])

        def product(weights):
            return lambda: torch.nn.functional.linear(x, weights)

        goes = [product(random(shape["outputs"], shape["inputs"])) for _ in range(copies)]
        yield "matmul", nullcontext(), goes
    elif kind == "prefill":
        tokens, width = shape["tokens"], shape["head_dim"]
        queries = random(1, shape["heads"], tokens, width)
        cached = [[random(1, shape["kv_heads"], tokens, width) for _ in range(2)]]
        yield from attention(queries, cached, is_causal=shape["is_causal"])
    elif kind == "decode":
        # Without pages: keys and values of a sequence side by side, which is the easier task.
        keys_of = (shape["batch"], shape["kv_heads"], shape["keys"], shape["head_dim"])
        queries = random(shape["batch"], shape["heads"], 1, shape["head_dim"])
        cached = [[random(*keys_of) for _ in range(2)] for _ in range(copies)]
        yield from attention(queries, cached, enable_gqa=True)


def main(shapes_file, out_file):
    with open(shapes_file) as file:
        asked = json.load(file)
    timed = []
    for shape, copies in zip(asked["shapes"], asked["copies"]):
        for name, context, goes in works(shape, copies):
            try:
                seconds = samples(context, goes, asked["samples"])
            except RuntimeError as error:
                # A backend that does not take this shape.
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                timed.append({"name": name, "shape": shape, "left_out": reason})
                continue
            timed.append({"name": name, "shape": shape, "seconds": seconds})
        torch.cuda.empty_cache()
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    with open(out_file, "w") as file:
        json.dump({"machine": machine, "timed": timed}, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
