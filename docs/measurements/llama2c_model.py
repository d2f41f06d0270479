#!/usr/bin/env python3
"""A Llama in GGUF as llama2.c reads it: in f32 for its `run`, in bytes with a scale for 64 of them for its `runq`.

    pip install gguf
    llama2c_model.py FILE.gguf FOLDER        # writes FOLDER/f32.bin, FOLDER/int8.bin, FOLDER/tokens.bin

GGUF has queries and keys in the order that llama2.c turns them in. Its base of RoPE is 10,000 whatever a model's is, so what
it then says is not what the model would; how fast it says it is the same. tokens.bin spells tokens as the file does.
"""

import pathlib
import struct
import sys

import gguf
import numpy

GROUP = 64


def number(reader, name):
    return int(reader.get_field(f"llama.{name}").contents())


def main():
    file, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def floats(name):
        tensor = tensors[name + ".weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32).reshape(-1)

    layers, width = number(reader, "block_count"), number(reader, "embedding_length")
    heads, kv_heads = number(reader, "attention.head_count"), number(reader, "attention.head_count_kv")
    vocabulary, positions = len(floats("token_embd")) // width, 1024
    sizes = (width, number(reader, "feed_forward_length"), layers, heads, kv_heads, vocabulary, positions)
    assert "output.weight" not in tensors, "a head of its own"

    def all_layers(*names):
        return [floats(f"blk.{layer}.{name}") for name in names for layer in range(layers)]

    attention, feed_forward = ["attn_q", "attn_k", "attn_v", "attn_output"], ["ffn_gate", "ffn_down", "ffn_up"]
    with open(folder / "f32.bin", "wb") as out:
        out.write(struct.pack("7i", *sizes))
        turns = [numpy.zeros(positions * width // heads, numpy.float32)]
        for part in (
            [floats("token_embd")], all_layers("attn_norm", *attention), all_layers("ffn_norm", *feed_forward),
            [floats("output_norm")], turns,
        ):
            for numbers in part:
                out.write(numbers.tobytes())
    with open(folder / "int8.bin", "wb") as out:
        head = b"24ka" + struct.pack("=i7iBi", 2, *sizes, True, GROUP)
        out.write(head.ljust(256, b"\0"))
        for numbers in all_layers("attn_norm", "ffn_norm") + [floats("output_norm")]:
            out.write(numbers.tobytes())
        for numbers in [floats("token_embd")] + all_layers(*attention, *feed_forward):
            groups = numbers.reshape(-1, GROUP)
            scales = numpy.abs(groups).max(axis=1) / 127
            codes = numpy.rint(groups / numpy.where(scales == 0, 1, scales)[:, None]).astype(numpy.int8)
            out.write(codes.tobytes() + scales.astype(numpy.float32).tobytes())
    with open(folder / "tokens.bin", "wb") as out:
        spelled = [token.encode() for token in reader.get_field("tokenizer.ggml.tokens").contents()]
        out.write(struct.pack("i", max(map(len, spelled))))
        for token in spelled:
            out.write(struct.pack("fi", 0.0, len(token)) + token)


if __name__ == "__main__":
    main()
