"""Formulas of heads over whole texts, for the references of the proof: no caches and no modules of the compiler."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, EncoderDecoderCache, LlamaConfig, PreTrainedModel, Qwen2_5_VLTextConfig
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from speccompile.compiler.models.sourced import has_source, read_source
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.prove.reference import whole_caches
from speccompile.drafters.weights import TargetEmbeddings, read_tensors
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import INTERLEAVED, MROPE, LayerShape

Weights = dict[str, Tensor]


def weights_of(head: HeadPlan) -> Weights:
    """Return all tensors of a head by normalised names, float32 except ids."""
    return {n: t.float() if t.is_floating_point() else t for n, t in read_tensors(head).items()}


def with_ends(head: HeadPlan, ends: TargetEmbeddings) -> Weights:
    """Return the head's weights, with the target's embedding and output head for missing ones."""
    weights = weights_of(head)
    if "embed_tokens.weight" not in weights:
        weights["embed_tokens.weight"] = ends.embed.table
    if "lm_head.weight" not in weights:
        weights["lm_head.weight"] = ends.head.weight
        if ends.head.bias is not None:
            weights["lm_head.bias"] = ends.head.bias
    return weights


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Apply the root mean square norm (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    return functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def causal(rows: int, window: int = 0) -> Tensor:
    """Return the causal mask bool [rows, rows], True where a row sees another; window: of the attention, 0 for none."""
    places = torch.arange(rows)
    behind = places[:, None] - places
    return (behind >= 0) & ((behind < window) if window else True)


def attention(
    queries: Tensor, rows: Tensor, positions: tuple[Tensor, Tensor], visible: Tensor, weights: Weights, name: str,
    layers: LayerShape,
) -> Tensor:  # fmt: skip
    """Return the attention output [T, h] of one text: queries [T, ..] at positions[0] over rows [R, ..] at
    positions[1]; visible bool [T, R]."""

    def heads(x: Tensor, kind: str) -> Tensor:
        projected = linear(x, weights, f"{name}.{kind}_proj").unflatten(-1, (-1, layers.head_dim))
        norm = weights.get(f"{name}.{kind}_norm.weight")
        return (projected if norm is None else rms(projected, norm, layers.eps)).transpose(0, 1)[None]

    query, key, value = heads(queries, "q"), heads(rows, "k"), heads(rows, "v")
    query, _ = apply_rotary_pos_emb(query, query, *_turn(layers, positions[0]))
    key, _ = apply_rotary_pos_emb(key, key, *_turn(layers, positions[1]))
    groups = layers.heads // layers.kv_heads
    context = functional.scaled_dot_product_attention(
        query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), attn_mask=visible[None, None]
    )
    return linear(context[0].transpose(0, 1).flatten(1), weights, f"{name}.o_proj")


def mlp(x: Tensor, weights: Weights, name: str, layers: LayerShape) -> Tensor:
    gate = ACT2FN[layers.activation](linear(x, weights, f"{name}.gate_proj"))
    return linear(gate * linear(x, weights, f"{name}.up_proj"), weights, f"{name}.down_proj")


def decoder_layer(x: Tensor, weights: Weights, index: int, layers: LayerShape, places: Tensor | None = None) -> Tensor:
    """Apply a causal decoder layer to the hidden states [T, h] of one text. places: positions int64 [T], or [3, T] on
    three axes; from 0 on by default."""
    name, places = f"layers.{index}", torch.arange(len(x)) if places is None else places
    read = rms(x, weights[f"{name}.input_layernorm.weight"], layers.eps)
    visible = causal(len(x), layers.windows[index])
    x = x + attention(read, read, (places, places), visible, weights, f"{name}.self_attn", layers)
    normed = rms(x, weights[f"{name}.post_attention_layernorm.weight"], layers.eps)
    return x + mlp(normed, weights, f"{name}.mlp", layers)


def over_target(logits: Tensor, head: HeadPlan, weights: Weights) -> Tensor:
    """Expand logits [.., Vd] over the draft vocabulary to [.., V], with -inf for tokens outside of it."""
    if "d2t" not in weights and "token_map" not in weights:
        return logits
    whole = logits.new_full((*logits.shape[:-1], head.vocabulary_size), -torch.inf)
    ids = weights["token_map"] if "token_map" in weights else torch.arange(logits.shape[-1]) + weights["d2t"]
    whole[..., ids] = logits
    return whole


def following(fed: DrafterInputs, drafts: Sequence[int], embed: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the embeddings [n, H] of the token after each committed one and of drafts, with the rows of pictures in
    their places. embed: tokens int64 [n] -> [n, H]."""
    tokens, pictures = torch.tensor([*fed.following, *drafts]), fed.pictures
    if pictures is None:
        return embed(tokens)
    rows, is_row = torch.tensor(pictures.rows[1:]), torch.tensor(pictures.is_row[1:])
    found = embed(tokens.index_fill(0, is_row.nonzero()[:, 0], 0))
    found[: len(rows)][is_row] = rows[is_row]
    return found


def text_positions(fed: DrafterInputs, count: int, layers: LayerShape) -> Tensor:
    """Return the positions of the first `count` tokens, int64 [count], or [3, count] of layers with M-RoPE."""
    pictures = fed.pictures
    if pictures is None or pictures.positions is None or not layers.axes:
        return torch.arange(count)
    return torch.tensor(pictures.positions[:, :count])


def committed_caches(model: PreTrainedModel, fed: DrafterInputs) -> Cache:
    """Return transformers' caches of a model over the committed tokens, pictures among them, behind its source."""
    committed = fed.known[:-1]
    read_source(model, fed.source)
    caches = EncoderDecoderCache(DynamicCache(), DynamicCache()) if has_source(model) else whole_caches(model)
    if fed.pictures is None:
        model(input_ids=torch.tensor([committed]), use_cache=True, cache=caches)
    else:
        fed.pictures.fill(committed, caches)
    return caches


def _turn(layers: LayerShape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return transformers' cosines and sines of positions int64 [T], or [3, T] on three axes."""
    is_plain = positions.ndim == 1
    rope = json.dumps(layers.plain_rope if is_plain else dict(layers.rope))
    rotary = _rotary(layers.hidden_size, layers.heads, layers.kv_heads, layers.head_dim, layers.positions, rope)
    cosines, sines = rotary(torch.zeros(1), positions[None] if is_plain else positions[:, None])
    return cosines, sines


@lru_cache(maxsize=16)
def _rotary(hidden_size: int, heads: int, kv_heads: int, head_dim: int, positions: int, rope: str) -> nn.Module:
    """Return the rotary embedding, cached because references use it at every position. rope: as JSON."""
    parameters = json.loads(rope)
    config = (Qwen2_5_VLTextConfig if MROPE in parameters else LlamaConfig)(
        hidden_size=hidden_size, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
        max_position_embeddings=positions, rope_parameters=parameters,
    )  # fmt: skip
    if MROPE not in parameters:
        return LlamaRotaryEmbedding(config)
    return (Qwen3VLTextRotaryEmbedding if parameters.get(INTERLEAVED) else Qwen2_5_VLRotaryEmbedding)(config)
