"""Write a trained model as Hugging Face's Llama loaders read it: bf16 safetensors and four JSON files."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from text import END_OF_TEXT, SPECIAL_TOKENS

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def write_json(path: Path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def export(model, tokenizer_file: Path, out: Path):
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    c = model.config
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": c.max_position_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TEXT,
        "torch_dtype": "bfloat16",
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
