"""Compute the bytes of caches from configs alone, and the longest text that fits a memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import TEXT
from speccompile.compiler.checkpoints.windows import attention_windows
from speccompile.contract import FLOAT_CACHE, FP8_CACHE, INT4_VALUES
from speccompile.drafters.token_map import MAP, MAX_EXPANSION
from speccompile.plan.caches import FULL, ring_size, spare_rows
from speccompile.plan.plan import ModelPlan, Plan

_HEADS = ("decoder_attention_heads", "num_attention_heads", "num_heads", "n_head")
"""Keys of a decoder's number of heads: of BART's kin, of language models, of T5's."""


@dataclass(frozen=True)
class CacheSize:
    """Bytes of the caches of one batch slot. token: of a token in the caches that have a row for every token; row: of
    one row of a ring; ring_rows: of each ring; spare: rows that a cache has beyond its longest text. source: of all
    rows of the longest source, of targets with an encoder."""

    token: int
    row: int
    ring_rows: tuple[int, ...]
    spare: int
    source: int = 0

    @property
    def rings(self) -> int:
        """Return the bytes of all rings."""
        return self.row * sum(self.ring_rows)

    def held(self, tokens: int) -> int:
        """Return the bytes of the rows that a text of so many tokens has."""
        return self.token * tokens + self.row * sum(min(tokens, rows) for rows in self.ring_rows)

    def of(self, tokens: int) -> int:
        """Return the bytes of caches for a text of so many tokens."""
        return self.token * (tokens + self.spare) + self.rings + self.source

    def longest(self, memory: float) -> int | None:
        """Return the number of tokens of the longest text whose caches fit a memory in bytes, 0 if none does; None if
        any does."""
        left = memory - self.rings - self.source
        if not self.token:
            return None if left >= 0 else 0
        return max(0, int(left // self.token) - self.spare)


def cache_size(plan: Plan) -> CacheSize:
    """Return the bytes of the caches of the target and the draft models, for one batch slot; at most those, of a
    drafter with another tokenizer."""
    spare = spare_rows(plan.prefill_chunk, plan.drafter.tokens)
    several = MAX_EXPANSION if plan.drafter.tokenizer == MAP else 1
    drafters = sum(token_bytes(model, plan.caches.drafter) for model in plan.drafter.models)
    rows, count = ring_rows(plan), max(1, plan.target.facts.layers or 0)
    whole = token_bytes(plan.target, plan.caches.target)
    each = whole // count
    source = 0 if plan.source is None else plan.source.max_length * (whole + drafters)
    return CacheSize(whole - each * len(rows) + several * drafters, each, tuple(rows), spare, source)


def ring_rows(plan: Plan) -> list[int]:
    """Return the rows of every layer of the target whose cache is a ring."""
    if plan.caches.sliding == FULL:
        return []
    spare = spare_rows(plan.prefill_chunk, plan.drafter.tokens)
    sizes = [plan.caches.ring_rows or ring_size(window, spare) for window in layer_windows(plan.target) if window]
    return [size for size in sizes if size < plan.max_length + spare]


def layer_windows(model: ModelPlan) -> tuple[int, ...]:
    """Return the attention window of each layer, 0 for none; see `attention_windows`."""
    return attention_windows(text_config(model), model.facts.layers or 0)


def cache_bytes(plan: Plan) -> int:
    """Return the bytes of the KV caches of all batch slots."""
    return plan.batch_size * cache_size(plan).of(plan.max_length)


def token_bytes(model: ModelPlan, dtype: str) -> int:
    """Return the bytes of a token's keys and values in all layers. dtype: of the stored caches; "float" is float32,
    int8 has a float32 scale for each row of a head, values in int4 have two, fp8 none."""
    width, heads = cache_width(model), cache_heads(model)
    if dtype == FP8_CACHE:
        return width
    if dtype == INT4_VALUES:
        return width // 2 + width // 4 + 6 * heads
    return 4 * width if dtype == FLOAT_CACHE else width + 4 * heads


def cache_width(model: ModelPlan) -> int:
    """Return the number of KV cache elements per token; an upper bound if the config does not say."""
    config = text_config(model)
    hidden, heads = model.facts.hidden_size or 0, config_number(config, *_HEADS, default=1)
    return cache_heads(model) * config_number(config, "head_dim", "d_kv", default=hidden // heads)


def cache_heads(model: ModelPlan) -> int:
    """Return the number of rows of keys and of values per token, of all layers; an upper bound if the config does not
    say."""
    config = text_config(model)
    heads = config_number(config, *_HEADS, default=1)
    return 2 * (model.facts.layers or 0) * config_number(config, "num_key_value_heads", default=heads)


def text_config(model: ModelPlan) -> Mapping[str, Any]:
    """Return the config of a model's text decoder, or of the decoder behind its encoder."""
    written = read_json_object(model.folder / CONFIG) or {}
    return written.get(TEXT) or written.get("decoder") or written


def config_number(config: Mapping[str, Any], *names: str, default: int) -> int:
    """Return the first of these numbers that a config has."""
    return next((config[name] for name in names if isinstance(config.get(name), int) and config[name] > 0), default)
