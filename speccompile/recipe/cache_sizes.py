"""Compute the bytes of caches from configs alone, and the longest text that fits a memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG, config_count, read_json_object
from speccompile.compiler.checkpoints.layer_rows import LayerRows, layer_rows
from speccompile.compiler.checkpoints.multimodal import TEXT
from speccompile.contract import FLOAT_CACHE, FP8_CACHE, INT4_VALUES
from speccompile.drafters.token_map import MAP, MAX_EXPANSION
from speccompile.plan.caches import FULL, ring_size, spare_rows
from speccompile.plan.plan import ModelPlan, Plan

SCALE = 4
"""Bytes of a scale."""


@dataclass(frozen=True)
class CacheSize:
    """Bytes of the caches of one batch slot. token: of a token in the caches that have a row for every token; rings:
    bytes of a row and number of rows of each ring; spare: rows that a cache has beyond its longest text;
    source: of all rows of the longest source, of targets with an encoder."""

    token: int
    rings: tuple[tuple[int, int], ...]
    spare: int
    source: int = 0

    @property
    def ring_bytes(self) -> int:
        """Return the bytes of all rings."""
        return sum(row * rows for row, rows in self.rings)

    def held(self, tokens: int) -> int:
        """Return the bytes of the rows that a text of so many tokens has."""
        return self.token * tokens + sum(row * min(tokens, rows) for row, rows in self.rings)

    def of(self, tokens: int) -> int:
        """Return the bytes of caches for a text of so many tokens."""
        return self.token * (tokens + self.spare) + self.ring_bytes + self.source

    def longest(self, memory: float) -> int | None:
        """Return the number of tokens of the longest text whose caches fit a memory in bytes, 0 if none does; None if
        any does."""
        left = memory - self.ring_bytes - self.source
        if not self.token:
            return None if left >= 0 else 0
        return max(0, int(left // self.token) - self.spare)


def cache_size(plan: Plan) -> CacheSize:
    """Return the bytes of the caches of the target and the draft models, for one batch slot; at most those, of a
    drafter with another tokenizer."""
    spare = spare_rows(plan.prefill_chunk, plan.drafter.tokens)
    several = MAX_EXPANSION if plan.drafter.tokenizer == MAP else 1
    drafters = sum(token_bytes(model, plan.caches.drafter) for model in plan.drafter.models)
    rings, full = list[tuple[int, int]](), 0
    for layer in cached_layers(plan.target):
        size, rows = row_bytes(layer, plan.caches.target), _ring_rows(plan, layer.window)
        if rows:
            rings.append((size, rows))
        else:
            full += size
    whole = token_bytes(plan.target, plan.caches.target)
    source = 0 if plan.source is None else plan.source.max_length * (whole + drafters)
    return CacheSize(full + several * drafters, tuple(rings), spare, source)


def ring_rows(plan: Plan) -> list[int]:
    """Return the rows of every layer of the target whose cache is a ring."""
    return [rows for layer in cached_layers(plan.target) if (rows := _ring_rows(plan, layer.window))]


def _ring_rows(plan: Plan, window: int) -> int:
    """Return the rows of the ring of a layer that sees so many latest positions, 0 if it has none."""
    if plan.caches.sliding == FULL or not window:
        return 0
    spare = spare_rows(plan.prefill_chunk, plan.drafter.tokens)
    size = plan.caches.ring_rows or ring_size(window, spare)
    return size if size < plan.max_length + spare else 0


def cached_layers(model: ModelPlan) -> tuple[LayerRows, ...]:
    """Return the rows of the layers of a model that have keys and values of their own; see `layer_rows`."""
    return layer_rows(text_config(model), model.facts.layers or 0)


def cache_bytes(plan: Plan) -> int:
    """Return the bytes of the KV caches of all batch slots."""
    return plan.batch_size * cache_size(plan).of(plan.max_length)


def token_bytes(model: ModelPlan, dtype: str) -> int:
    """Return the bytes of a token's keys and values in all layers. dtype: as for `row_bytes`."""
    return sum(row_bytes(layer, dtype) for layer in cached_layers(model))


def plan_token_bytes(plan: Plan) -> int:
    """Return the bytes of a token's keys and values in all layers of the target and the draft models."""
    caches = plan.caches
    drafters = sum(token_bytes(model, caches.drafter) for model in plan.drafter.models)
    return token_bytes(plan.target, caches.target) + drafters


def row_bytes(layer: LayerRows, dtype: str) -> int:
    """Return the bytes of a token's keys and values in one layer. dtype: of the stored caches; "float" is float32, int8
    has a float32 scale for each row of a head, values in int4 have two, fp8 none."""
    width = layer.key + layer.value
    if dtype == FP8_CACHE:
        return layer.heads * width
    if dtype == INT4_VALUES:
        return layer.heads * (layer.key + layer.value // 2 + 3 * SCALE)
    return layer.heads * (4 * width if dtype == FLOAT_CACHE else width + 2 * SCALE)


def cache_width(model: ModelPlan) -> int:
    """Return the number of KV cache elements per token; an upper bound if the config does not say."""
    return sum(layer.heads * (layer.key + layer.value) for layer in cached_layers(model))


def text_config(model: ModelPlan) -> Mapping[str, Any]:
    """Return the config of a model's text decoder, or of the decoder behind its encoder."""
    written = read_json_object(model.folder / CONFIG) or {}
    return written.get(TEXT) or written.get("decoder") or written


def config_number(config: Mapping[str, Any], *names: str, default: int) -> int:
    """Return the first of these numbers that a config has, above zero; `default` if it has none."""
    return config_count(config, *names) or default
