"""The shapes of the family. Fields carry the names that Hugging Face gives them in config.json."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Config:
    """A Llama: several query heads share each key head."""

    architecture: ClassVar[str] = "LlamaForCausalLM"
    model_type: ClassVar[str] = "llama"

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


@dataclass(frozen=True, kw_only=True)
class LatentConfig(Config):
    """Multi-head latent attention in DeepSeek-V2's layout, without query compression and without experts.

    As in Hugging Face, `head_dim` is the part of a head that rotary positions turn, `qk_rope_head_dim`,
    and there are as many key heads as query heads. Their loaders build the norm of the latent with an
    epsilon of 1e-6 whatever the file says, so that no other is safe.
    """

    architecture: ClassVar[str] = "DeepseekV2ForCausalLM"
    model_type: ClassVar[str] = "deepseek_v2"

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rms_norm_eps: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class HybridConfig(Config):
    """Norms on queries and keys, windows in some layers, keys and values that layers share.

    `layer_types` says for each layer "sliding_attention", which sees `sliding_window` positions with its
    own, or "full_attention". `kv_shared_with` names for each layer the earlier one whose keys and values
    it uses, or None if it makes its own.
    """

    architecture: ClassVar[str] = "HybridForCausalLM"
    model_type: ClassVar[str] = "hybrid"

    layer_types: list
    sliding_window: int
    kv_shared_with: list


WINDOWED, FULL = "sliding_attention", "full_attention"
ARCHITECTURES = {config.architecture: config for config in (Config, LatentConfig, HybridConfig)}

FAMILY = {
    "target": Config(256, 6, 8, 2, 32, 704),
    "draft": Config(128, 2, 4, 1, 32, 352),
    # Three ways to a smaller cache, numbers kept a token and layer: 80 in `mla`, 128 in its control
    # `gqa`; `hybrid` keeps 128 in four layers of six and forgets them behind the window in two of those.
    "mla": LatentConfig(
        192, 6, 6, 6, 16, 512, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32
    ),
    "gqa": Config(192, 6, 6, 2, 32, 512),
    "hybrid": HybridConfig(
        192, 6, 6, 2, 32, 512,
        layer_types=[WINDOWED, WINDOWED, FULL] * 2,
        sliding_window=64,
        kv_shared_with=[None, 0, None, None, 3, None],
    ),
    # For the proof that the recipe works, not for use.
    "smoke-target": Config(64, 2, 4, 2, 16, 176),
    "smoke-draft": Config(32, 1, 2, 1, 16, 88),
    "smoke-mla": LatentConfig(
        64, 2, 2, 2, 8, 128, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
    ),
    "smoke-gqa": Config(64, 2, 2, 1, 16, 128),
    "smoke-hybrid": HybridConfig(
        64, 3, 2, 1, 16, 128,
        layer_types=[WINDOWED, WINDOWED, FULL],
        sliding_window=32,
        kv_shared_with=[None, 0, None],
    ),
}
