"""How rows meet each other: grouped queries, the same with windows and shared keys, or a latent.

Parameters carry the names that Hugging Face gives them.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import nn

from config import WINDOWED


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    """RMSNorm over the last `width` numbers."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


@lru_cache(maxsize=64)
def rotary_tables(width, theta, rows):
    """Cosines and sines [rows, width], each half a copy of the other as in Hugging Face."""
    half = torch.arange(0, width, 2).float() / width
    angles = torch.outer(torch.arange(rows).float(), theta**-half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


@lru_cache(maxsize=64)
def window_mask(window, rows):
    """[rows, rows]: may a row see a column? Its own and the `window - 1` before it."""
    distance = torch.arange(rows)[:, None] - torch.arange(rows)
    return (distance >= 0) & (distance < window)


class Rows:
    """What one pass of a model gives every layer's attention, and what layers leave for later ones."""

    def __init__(self, config, rows):
        self.cosines, self.sines = rotary_tables(config.head_dim, config.rope_theta, rows)
        self.keys_and_values = {}  # by the layer that made them

    def rotate(self, x):
        """x [.., rows, head_dim], dimension i paired with i + head_dim / 2."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cosines + torch.cat([-second, first], dim=-1) * self.sines


def split(projected, heads):
    """[batch, rows, heads * width] -> [batch, heads, rows, width]"""
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(attended):
    """[batch, heads, rows, width] -> [batch, rows, heads * width]"""
    return attended.transpose(1, 2).flatten(-2)


class Attention(nn.Module):
    """Several query heads share each key head (Ainslie et al. 2023)."""

    def __init__(self, config, layer):
        super().__init__()
        self.config = config
        d, width = config.hidden_size, config.head_dim
        self.q_proj = linear(d, config.num_attention_heads * width)
        self.k_proj = linear(d, config.num_key_value_heads * width)
        self.v_proj = linear(d, config.num_key_value_heads * width)
        self.o_proj = linear(config.num_attention_heads * width, d)

    def forward(self, x, rows):
        q = rows.rotate(split(self.q_proj(x), self.config.num_attention_heads))
        k = rows.rotate(split(self.k_proj(x), self.config.num_key_value_heads))
        v = split(self.v_proj(x), self.config.num_key_value_heads)
        return self.o_proj(join(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)))


class HybridAttention(nn.Module):
    """Grouped queries; queries and keys normed head by head; perhaps a window; perhaps another layer's keys."""

    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer = config, layer
        self.source = config.kv_shared_with[layer]
        self.window = config.sliding_window if config.layer_types[layer] == WINDOWED else None
        d, width = config.hidden_size, config.head_dim
        self.q_proj = linear(d, config.num_attention_heads * width)
        self.q_norm = Norm(width, config.rms_norm_eps)
        if self.source is None:
            self.k_proj = linear(d, config.num_key_value_heads * width)
            self.k_norm = Norm(width, config.rms_norm_eps)
            self.v_proj = linear(d, config.num_key_value_heads * width)
        self.o_proj = linear(config.num_attention_heads * width, d)

    def forward(self, x, rows):
        kv_heads = self.config.num_key_value_heads
        q = rows.rotate(self.q_norm(split(self.q_proj(x), self.config.num_attention_heads)))
        if self.source is None:
            k = rows.rotate(self.k_norm(split(self.k_proj(x), kv_heads)))
            rows.keys_and_values[self.layer] = (k, split(self.v_proj(x), kv_heads))
            source = self.layer
        else:
            source = self.source
        k, v = rows.keys_and_values[source]
        seen = dict(is_causal=True)
        if self.window is not None:
            seen = dict(attn_mask=window_mask(self.window, x.shape[1]))
        return self.o_proj(join(F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **seen)))


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, section 2.1), in the form with explicit keys and values.

    Rotated dimensions 2i and 2i + 1 of `q_proj` and `kv_a_proj_with_mqa` are a pair, as DeepSeek stores
    them: `interleaved` brings the firsts before the seconds, in queries and keys alike.
    """

    def __init__(self, config, layer):
        super().__init__()
        self.config = config
        d, heads = config.hidden_size, config.num_attention_heads
        nope, rope = config.qk_nope_head_dim, config.qk_rope_head_dim
        self.q_proj = linear(d, heads * (nope + rope))
        self.kv_a_proj_with_mqa = linear(d, config.kv_lora_rank + rope)
        self.kv_a_layernorm = Norm(config.kv_lora_rank, config.rms_norm_eps)
        self.kv_b_proj = linear(config.kv_lora_rank, heads * (nope + config.v_head_dim))
        self.o_proj = linear(heads * config.v_head_dim, d)

    def forward(self, x, rows):
        c = self.config
        heads, nope, rope = c.num_attention_heads, c.qk_nope_head_dim, c.qk_rope_head_dim
        q, q_rotated = split(self.q_proj(x), heads).split([nope, rope], dim=-1)
        latent, k_rotated = self.kv_a_proj_with_mqa(x).split([c.kv_lora_rank, rope], dim=-1)
        k, v = split(self.kv_b_proj(self.kv_a_layernorm(latent)), heads).split([nope, c.v_head_dim], dim=-1)
        q = torch.cat([q, rows.rotate(interleaved(q_rotated))], dim=-1)
        # One rotated key for all heads.
        k_rotated = rows.rotate(interleaved(split(k_rotated, 1))).expand(-1, heads, -1, -1)
        k = torch.cat([k, k_rotated], dim=-1)
        # Zeros make values as wide as keys: PyTorch's fast kernel needs that.
        v = F.pad(v, (0, nope + rope - c.v_head_dim))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., : c.v_head_dim]
        return self.o_proj(join(attended))


def interleaved(x):
    """[.., (first, second) by pair] -> [.., all firsts, all seconds]"""
    return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)
