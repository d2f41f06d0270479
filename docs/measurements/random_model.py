#!/usr/bin/env python3
"""A model of random weights, of a family and of sizes that no small published one has.

    pip install gguf==0.19.0
    random_model.py llama SmolLM2-135M-Instruct.Q4_1.gguf random.gguf
    llama-quantize random.gguf random.q4_k_m.gguf Q4_K_M

What it says is nothing, so it is good for one thing: how fast weights are read and multiplied. The tokenizer is of the file that
is given.

llama     231 million weights in rows that are whole blocks of K-quants (SmolLM2's 576 numbers are not).
qwen3     491 million: the sizes of Qwen3-0.6B, but for the vocabulary.
qwen3moe  2.7 billion: four layers of Qwen3-30B-A3B, 128 experts each, of which a token meets eight.
"""

import argparse
import dataclasses

import gguf
import numpy


@dataclasses.dataclass
class Sizes:
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    rope_base: float = 1e6
    epsilon: float = 1e-6
    qk_norm: bool = True
    experts: int = 0
    experts_used: int = 0


FAMILIES = {
    "llama": Sizes(1024, 2816, 16, heads=16, kv_heads=4, head=64, rope_base=1e4, epsilon=1e-5, qk_norm=False),
    "qwen3": Sizes(1024, 3072, 28, heads=16, kv_heads=8, head=128),
    "qwen3moe": Sizes(2048, 768, 4, heads=32, kv_heads=4, head=128, experts=128, experts_used=8),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("family", choices=FAMILIES)
    arguments.add_argument("source", help="a GGUF file with a tokenizer")
    arguments.add_argument("to", help="the file to write")
    options = arguments.parse_args()
    sizes = FAMILIES[options.family]
    source, model = gguf.GGUFReader(options.source), gguf.GGUFWriter(options.to, options.family)
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            model.add_key_value(name, field.contents(), field.types[0], *field.types[1:])
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].contents())
    model.add_vocab_size(vocabulary)
    model.add_context_length(4096)
    model.add_block_count(sizes.layers)
    model.add_embedding_length(sizes.width)
    model.add_feed_forward_length(sizes.inner)
    model.add_head_count(sizes.heads)
    model.add_head_count_kv(sizes.kv_heads)
    model.add_key_length(sizes.head)
    model.add_value_length(sizes.head)
    model.add_rope_dimension_count(sizes.head)
    model.add_rope_freq_base(sizes.rope_base)
    model.add_layer_norm_rms_eps(sizes.epsilon)
    if sizes.experts:
        model.add_expert_count(sizes.experts)
        model.add_expert_used_count(sizes.experts_used)
        model.add_expert_feed_forward_length(sizes.inner)
    random = numpy.random.default_rng(1)

    def matrix(name, *shape, kind=numpy.float16):
        numbers = random.standard_normal(shape, dtype=numpy.float32)
        numbers *= 0.02
        model.add_tensor(f"{name}.weight", numbers.astype(kind))

    def norm(name, width):
        model.add_tensor(f"{name}.weight", numpy.ones(width, dtype=numpy.float32))

    width, inner = sizes.width, sizes.inner
    wide, narrow = sizes.heads * sizes.head, sizes.kv_heads * sizes.head
    matrix("token_embd", vocabulary, width)
    norm("output_norm", width)
    for layer in range(sizes.layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm", width)
        norm(block + "ffn_norm", width)
        matrix(block + "attn_q", wide, width)
        matrix(block + "attn_k", narrow, width)
        matrix(block + "attn_v", narrow, width)
        matrix(block + "attn_output", width, wide)
        if sizes.qk_norm:
            norm(block + "attn_q_norm", sizes.head)
            norm(block + "attn_k_norm", sizes.head)
        if sizes.experts:
            matrix(block + "ffn_gate_inp", sizes.experts, width, kind=numpy.float32)
            matrix(block + "ffn_gate_exps", sizes.experts, inner, width)
            matrix(block + "ffn_up_exps", sizes.experts, inner, width)
            matrix(block + "ffn_down_exps", sizes.experts, width, inner)
        else:
            matrix(block + "ffn_gate", inner, width)
            matrix(block + "ffn_up", inner, width)
            matrix(block + "ffn_down", width, inner)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    main()
