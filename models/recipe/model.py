"""The Llama family: RMSNorm, rotary positions, grouped queries, SwiGLU, tied embedding.

Parameters carry the names that Hugging Face gives them, so that export is a plain save.
A later variant replaces `Attention` (and what `Config` says about it); nothing else knows how rows
meet each other.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from initial import initialize


@dataclass(frozen=True)
class Config:
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int = 2048
    max_position_embeddings: int = 512
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5


FAMILY = {
    "target": Config(256, 6, 8, 2, 32, 704),
    "draft": Config(128, 2, 4, 1, 32, 352),
    # For the proof that the recipe works, not for use.
    "smoke-target": Config(64, 2, 4, 2, 16, 176),
    "smoke-draft": Config(32, 1, 2, 1, 16, 88),
}


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.eps = config.rms_norm_eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary_tables(config, positions):
    """Cosines and sines [positions, head_dim], each half a copy of the other as in Hugging Face."""
    half = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    angles = torch.outer(torch.arange(positions).float(), config.rope_theta**-half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        d, width = config.hidden_size, config.head_dim
        self.q_proj = linear(d, config.num_attention_heads * width)
        self.k_proj = linear(d, config.num_key_value_heads * width)
        self.v_proj = linear(d, config.num_key_value_heads * width)
        self.o_proj = linear(config.num_attention_heads * width, d)

    def forward(self, x, cosines, sines):
        batch, rows, _ = x.shape
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads

        def split(projected, count):  # -> [batch, count, rows, head_dim]
            return projected.view(batch, rows, count, self.config.head_dim).transpose(1, 2)

        q = rotate(split(self.q_proj(x), heads), cosines, sines)
        k = rotate(split(self.k_proj(x), kv_heads), cosines, sines)
        v = split(self.v_proj(x), kv_heads)
        k = k.repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).reshape(batch, rows, -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.intermediate_size)
        self.up_proj = linear(config.hidden_size, config.intermediate_size)
        self.down_proj = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = Norm(config)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config)
        self.mlp = FeedForward(config)

    def forward(self, x, cosines, sines):
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = Norm(config)


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        initialize(self)

    def hidden(self, tokens):
        """tokens [batch, rows] -> what the head reads [batch, rows, hidden_size]."""
        x = self.model.embed_tokens(tokens)
        cosines, sines = rotary_tables(self.config, tokens.shape[1])
        for layer in self.model.layers:
            x = layer(x, cosines, sines)
        return self.model.norm(x)

    def forward(self, tokens):
        """tokens [batch, rows] -> logits [batch, rows, vocabulary]."""
        return F.linear(self.hidden(tokens), self.model.embed_tokens.weight)
