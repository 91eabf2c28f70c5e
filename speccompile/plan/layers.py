"""Transformer layers of heads: their shape, as a Hugging Face config describes it, and their tensors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from speccompile.machine.formats.image_settings import rotary_axes

Shapes = dict[str, tuple[int, ...]]
"""Tensor name -> shape."""

MROPE, INTERLEAVED = "mrope_section", "mrope_interleaved"
"""Keys of `rope_parameters` for positions on three axes: frequencies of each axis, and whether they take turns."""


@dataclass(frozen=True)
class LayerShape:
    """Shape of decoder layers of Llama's form. windows: sliding window of every layer, 0 for none.

    rope: transformers' `rope_parameters`, with `rope_type` and `rope_theta`; of M-RoPE with `mrope_section`. qk_norm:
    queries and keys are normed per attention head (Qwen 3). qkv_bias, output_bias, mlp_bias: biases of queries, keys
    and values; of the attention's output projection; of the MLP.
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    activation: str
    rope: Mapping[str, Any]
    positions: int
    windows: tuple[int, ...]
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False

    @property
    def count(self) -> int:
        return len(self.windows)

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the axis of each rotary frequency's positions (M-RoPE); none where a row has one position."""
        return rotary_axes(self.rope.get(MROPE, ()), interleaved=bool(self.rope.get(INTERLEAVED)))

    @property
    def plain_rope(self) -> dict[str, Any]:
        """Return transformers' `rope_parameters` of positions that are the same on all axes."""
        return {name: value for name, value in self.rope.items() if name not in (MROPE, INTERLEAVED)}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"windows": list(self.windows), "rope": dict(self.rope)}

    def tensors(self, index: int, inputs: int | None = None) -> Shapes:
        """Return the tensors `layers.<index>.*` of a layer, both norms included. inputs: width of the attention's
        input, by default the hidden size."""
        width, inputs = self.hidden_size, inputs or self.hidden_size
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found: Shapes = {
            "self_attn.q_proj.weight": (queries, inputs),
            "self_attn.k_proj.weight": (keys, inputs),
            "self_attn.v_proj.weight": (keys, inputs),
            "self_attn.o_proj.weight": (width, queries),
            "mlp.gate_proj.weight": (self.intermediate_size, width),
            "mlp.up_proj.weight": (self.intermediate_size, width),
            "mlp.down_proj.weight": (width, self.intermediate_size),
            "input_layernorm.weight": (width,),
            "post_attention_layernorm.weight": (width,),
        }
        if self.qk_norm:
            found |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        if self.qkv_bias:
            found |= {
                f"self_attn.{name}_proj.bias": (size,) for name, size in zip("qkv", (queries, keys, keys), strict=True)
            }
        if self.output_bias:
            found["self_attn.o_proj.bias"] = (width,)
        if self.mlp_bias:
            sizes = {"gate": self.intermediate_size, "up": self.intermediate_size, "down": width}
            found |= {f"mlp.{name}_proj.bias": (size,) for name, size in sizes.items()}
        return {f"layers.{index}.{name}": shape for name, shape in found.items()}


@dataclass(frozen=True)
class LayersPlan:
    """The attention and MLP halves of the target's layers that draft, each in ascending order; never both empty."""

    attention: tuple[int, ...]
    mlp: tuple[int, ...]

    def __str__(self) -> str:
        attention, mlp = (", ".join(map(str, its)) or "none" for its in (self.attention, self.mlp))
        return attention if self.attention == self.mlp else f"attention {attention}; mlp {mlp}"

    @property
    def halves(self) -> int:
        """Number of attention and MLP halves."""
        return len(self.attention) + len(self.mlp)

    def to_json(self) -> Any:
        """Return the recipe's form: one list if each layer has both halves, otherwise a mapping of two lists."""
        return list(self.attention) if self.attention == self.mlp else {k: list(v) for k, v in asdict(self).items()}
