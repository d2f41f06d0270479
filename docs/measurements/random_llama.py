#!/usr/bin/env python3
"""A Llama of 231 million random weights, whose rows are whole blocks of K-quants (SmolLM2's 576 numbers are not).

    pip install gguf==0.19.0
    random_llama.py SmolLM2-135M-Instruct.Q4_1.gguf random.gguf
    llama-quantize random.gguf random.q4_k_m.gguf Q4_K_M

What it says is nothing, so it is good for one thing: how fast weights are read and multiplied. The tokenizer is of the first file.
"""

import sys

import gguf
import numpy

WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1024, 2816, 16, 16, 4


def main():
    _, source, to = sys.argv
    source, model = gguf.GGUFReader(source), gguf.GGUFWriter(to, "llama")
    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            model.add_key_value(name, field.contents(), field.types[0], *field.types[1:])
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].contents())
    model.add_vocab_size(vocabulary)
    model.add_context_length(4096)
    model.add_block_count(LAYERS)
    model.add_embedding_length(WIDTH)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(KV_HEADS)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_rope_freq_base(10_000.0)
    model.add_layer_norm_rms_eps(1e-5)
    random = numpy.random.default_rng(1)

    def matrix(name, outputs, inputs):
        numbers = random.standard_normal((outputs, inputs), dtype=numpy.float32)
        model.add_tensor(f"{name}.weight", (0.02 * numbers).astype(numpy.float16))

    def norm(name):
        model.add_tensor(f"{name}.weight", numpy.ones(WIDTH, dtype=numpy.float32))

    matrix("token_embd", vocabulary, WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        for name in ["attn_norm", "ffn_norm"]:
            norm(f"blk.{layer}.{name}")
        narrow = WIDTH // HEADS * KV_HEADS
        for name, outputs, inputs in [
            ("attn_q", WIDTH, WIDTH), ("attn_k", narrow, WIDTH), ("attn_v", narrow, WIDTH), ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER),
        ]:
            matrix(f"blk.{layer}.{name}", outputs, inputs)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    main()
