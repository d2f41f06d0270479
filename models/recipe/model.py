"""The family's models: RMSNorm, some attention with rotary positions, SwiGLU, tied embedding.

Parameters carry the names that Hugging Face gives them, so that export is a plain save.
"""

import torch.nn.functional as F
from torch import nn

from attention import Attention, HybridAttention, LatentAttention, Norm, Rows, linear
from config import Config, HybridConfig, LatentConfig
from initial import initialize

ATTENTION = {Config: Attention, LatentConfig: LatentAttention, HybridConfig: HybridAttention}


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.intermediate_size)
        self.up_proj = linear(config.hidden_size, config.intermediate_size)
        self.down_proj = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = ATTENTION[type(config)](config, layer)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x, rows):
        x = x + self.self_attn(self.input_layernorm(x), rows)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config, layer) for layer in range(config.num_hidden_layers)])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        initialize(self)

    def hidden(self, tokens):
        """tokens [batch, rows] -> what the head reads [batch, rows, hidden_size]."""
        x = self.model.embed_tokens(tokens)
        rows = Rows(self.config, tokens.shape[1])
        for layer in self.model.layers:
            x = layer(x, rows)
        return self.model.norm(x)

    def forward(self, tokens):
        """tokens [batch, rows] -> logits [batch, rows, vocabulary]."""
        return F.linear(self.hidden(tokens), self.model.embed_tokens.weight)
