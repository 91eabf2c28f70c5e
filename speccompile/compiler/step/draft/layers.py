"""Transformer layers of drafting heads, with the attention hook: Llama's architecture, from parts of transformers."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from speccompile.compiler.step.attention import AttentionCall, CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import State
from speccompile.compiler.step.frequencies import freeze_positions
from speccompile.compiler.step.media_rows import on_axes
from speccompile.plan.layers import LayerShape

Turn = tuple[Tensor, Tensor]
"""Cosines and sines of some positions, each [B, T, D]."""


class Rotary(nn.Module):
    """Rotary position embeddings by a head's own config, for at most `max_length` positions."""

    def __init__(self, layers: LayerShape, max_length: int) -> None:
        super().__init__()
        self.embedding, self.axes = LlamaRotaryEmbedding(_config(layers)), layers.axes
        freeze_positions(self, max_length)
        for buffer in ("inv_freq", "original_inv_freq"):  # constants: no part of a checkpoint
            self.embedding.register_buffer(buffer, getattr(self.embedding, buffer), persistent=False)

    def forward(self, positions: Tensor, offsets: Tensor | None = None) -> Turn:
        """Return the cosines and sines of positions int64 [B, T]; of M-RoPE plus offsets int64 [B, 3, T] on the axes of
        the layers."""
        hidden = torch.zeros(1, dtype=torch.float32, device=positions.device)
        if offsets is not None:
            return on_axes(self.embedding, self.axes, hidden, positions, offsets)
        cosines, sines = self.embedding(hidden, positions)
        return cosines, sines


class Attention(nn.Module):
    """Attention of one layer; its rows stay in the pass. `index`: number of the layer among those of the pass."""

    def __init__(self, layers: LayerShape, index: int, inputs: int | None = None) -> None:
        """inputs: width of its input rows, by default the hidden size."""
        super().__init__()
        width, inputs = layers.hidden_size, inputs or layers.hidden_size
        self.index, self.head_dim = index, layers.head_dim
        queries, keys = layers.heads * layers.head_dim, layers.kv_heads * layers.head_dim
        self.q_proj = nn.Linear(inputs, queries, bias=layers.qkv_bias)
        self.k_proj = nn.Linear(inputs, keys, bias=layers.qkv_bias)
        self.v_proj = nn.Linear(inputs, keys, bias=layers.qkv_bias)
        self.o_proj = nn.Linear(queries, width, bias=layers.output_bias)
        if layers.qk_norm:
            self.q_norm = LlamaRMSNorm(layers.head_dim, layers.eps)
            self.k_norm = LlamaRMSNorm(layers.head_dim, layers.eps)
        self.has_norms = layers.qk_norm

    def add_rows(self, x: Tensor, current: CachedPass, turn: Turn) -> None:
        """Put the keys and values of rows [B, T, ..] into the pass, without a query."""
        keys = self._heads(self.k_proj(x))
        keys = (self.k_norm(keys) if self.has_norms else keys).transpose(1, 2)
        _, keys = apply_rotary_pos_emb(keys, keys, *turn)
        current.update(keys, self._heads(self.v_proj(x)).transpose(1, 2), self.index)

    def forward(self, x: Tensor, current: CachedPass, turn: Turn) -> Tensor:
        """Attend: [B, T, ..] -> [B, T, h]. The rows are put into the pass, which says what each of them sees."""
        self.add_rows(x, current, turn)
        queries = self._heads(self.q_proj(x))
        queries = (self.q_norm(queries) if self.has_norms else queries).transpose(1, 2)
        queries, _ = apply_rotary_pos_emb(queries, queries, *turn)
        context = current.attend(queries, AttentionCall(self.index, self.index, scale=self.head_dim**-0.5))
        return self.o_proj(context.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))


class Layer(nn.Module):
    """A decoder layer. has_input_norm: EAGLE's first has none."""

    def __init__(self, layers: LayerShape, index: int, *, has_input_norm: bool = True) -> None:
        super().__init__()
        self.self_attn = Attention(layers, index)
        self.mlp = make_mlp(layers)
        self.input_layernorm = make_norm(layers) if has_input_norm else nn.Identity()
        self.post_attention_layernorm = make_norm(layers)

    def forward(self, x: Tensor, current: CachedPass, turn: Turn) -> Tensor:
        """Return the residual stream [B, T, h] after the layer."""
        x = x + self.self_attn(self.input_layernorm(x), current, turn)
        return x + self.mlp(self.post_attention_layernorm(x))


def make_norm(layers: LayerShape, width: int | None = None) -> LlamaRMSNorm:
    return LlamaRMSNorm(width or layers.hidden_size, layers.eps)


def make_mlp(layers: LayerShape) -> LlamaMLP:
    return LlamaMLP(
        SimpleNamespace(
            hidden_size=layers.hidden_size,
            intermediate_size=layers.intermediate_size,
            mlp_bias=layers.mlp_bias,
            hidden_act=layers.activation,
        )
    )


def layer_states(layers: LayerShape, shape: CacheShape) -> list[State]:
    """Return the caches of the layers: `drafter.key.0`, `drafter.value.0`, `drafter.key.1`, .."""
    size = (shape.batch_size, layers.kv_heads, shape.rows, layers.head_dim)
    names = (f"drafter.{kind}.{index}" for index in range(layers.count) for kind in ("key", "value"))
    return [State(name, torch.float32, size) for name in names]


def _config(layers: LayerShape) -> Any:
    return LlamaConfig(
        hidden_size=layers.hidden_size, num_attention_heads=layers.heads, num_key_value_heads=layers.kv_heads,
        head_dim=layers.head_dim, max_position_embeddings=layers.positions, rope_parameters=layers.plain_rope,
    )  # fmt: skip
