"""Write a trained model as Hugging Face's loaders read it: bf16 safetensors and four JSON files.

Matrices are `[out, in]`. Where rotary positions turn rows of a projection, a Llama's and a hybrid's row i
of a head is paired with row i + head_dim / 2. A latent model's rotated rows are paired as DeepSeek pairs
them, 2i with 2i + 1: in `q_proj` the last `qk_rope_head_dim` rows of each head, in `kv_a_proj_with_mqa`
the last ones of all. A loader that turns halves must first bring the even rows before the odd ones.

Each head of `q_proj` is [nope, rope], of `kv_b_proj` [keys (nope), values]; `kv_a_proj_with_mqa` is [latent, rope].
A hybrid's layer whose `kv_shared_with` names another has no `k_proj`, `k_norm` and `v_proj`.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file

from config import LatentConfig
from text import END_OF_TEXT, SPECIAL_TOKENS

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def write_json(path: Path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def without_experts(config):
    """What a DeepSeek-V2 config says besides: queries are not compressed, every layer is dense.

    How many experts there are is left out: some loaders want null there and others refuse it.
    """
    return {
        "q_lora_rank": None,
        "first_k_dense_replace": config.num_hidden_layers,
        "moe_intermediate_size": config.intermediate_size,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    }


def export(model, tokenizer_file: Path, out: Path):
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    c = model.config
    write_json(out / "config.json", {
        "architectures": [c.architecture],
        "model_type": c.model_type,
        **asdict(c),
        "hidden_act": "silu",
        "rope_scaling": None,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TEXT,
        "torch_dtype": "bfloat16",
        **(without_experts(c) if isinstance(c, LatentConfig) else {"mlp_bias": False}),
    })
    # A chat turn ends with <|end|>, any other text with <|endoftext|>.
    end_of_turn = SPECIAL_TOKENS.index("<|end|>")
    write_json(out / "generation_config.json", {
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": [END_OF_TEXT, end_of_turn],
    })
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[END_OF_TEXT],
        "eos_token": SPECIAL_TOKENS[END_OF_TEXT],
        "additional_special_tokens": SPECIAL_TOKENS[1:],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": c.max_position_embeddings,
        "chat_template": CHAT_TEMPLATE,
    })
    shutil.copy(tokenizer_file, out / "tokenizer.json")
    for file in out.iterdir():
        file.chmod(0o644)
