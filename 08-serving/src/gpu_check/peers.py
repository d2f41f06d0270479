"""Times the shapes of `ladder gpu-check` in PyTorch: its attention by several backends, its matrix products, a copy.

Usage: python3 peers.py shapes.json peers.json
"""

import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SAMPLE_SECONDS = 0.02
BACKENDS = {
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def samples(work, count):
    """Seconds of one go; as many goes to a sample as take SAMPLE_SECONDS."""

    def go(times):
        began = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    go(1)
    times = max(1, min(2000, int(SAMPLE_SECONDS / go(1))))
    go(times)
    return [go(times) / times for _ in range(count)]


def random(*shape):
    return torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 2 - 1


def attention(queries, keys, values, **options):
    """One peer for each backend that takes these."""
    for name, backend in BACKENDS.items():

        def work(backend=backend):
            with sdpa_kernel(backend):
                scaled_dot_product_attention(queries, keys, values, **options)

        yield name, work


def works(shape):
    kind = shape["kind"]
    if kind == "copy":
        source = torch.empty(shape["bytes"], device="cuda", dtype=torch.uint8)
        target = torch.empty_like(source)
        yield "copy", lambda: target.copy_(source)
    elif kind == "gemm":
        x = random(shape["rows"], shape["inputs"])
        weights = random(shape["outputs"], shape["inputs"])
        yield "matmul", lambda: torch.nn.functional.linear(x, weights)
    elif kind == "prefill":
        tokens, width = shape["tokens"], shape["head_dim"]
        queries = random(1, shape["heads"], tokens, width)
        keys, values = (random(1, shape["kv_heads"], tokens, width) for _ in range(2))
        yield from attention(queries, keys, values, is_causal=shape["is_causal"])
    elif kind == "decode":
        # Without pages: keys and values of a sequence side by side, which is the easier task.
        keys_of = (shape["batch"], shape["kv_heads"], shape["keys"], shape["head_dim"])
        queries = random(shape["batch"], shape["heads"], 1, shape["head_dim"])
        yield from attention(queries, random(*keys_of), random(*keys_of), enable_gqa=True)


def main(shapes_file, out_file):
    with open(shapes_file) as file:
        asked = json.load(file)
    timed = []
    for shape in asked["shapes"]:
        for name, work in works(shape):
            try:
                seconds = samples(work, asked["samples"])
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
