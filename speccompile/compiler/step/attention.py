"""The attention hook: every transformers decoder attends through here, and no model file is copied.

transformers asks three things of a decoder layer: a mask (from the mask interface), its keys and values (put into the
cache), and the attention itself (from the attention interface). All three lead to one `CachedPass`: the mask interface
returns a `MaskTag`, the cache keeps the in-step rows, and the attention function calls `speccompile::attend`. Layers
with a recurrent state use the same pass: see `recurrence`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from speccompile.bundle.caches import code_bits
from speccompile.compiler.step import ops
from speccompile.compiler.step.cross_attention import CrossRows
from speccompile.compiler.step.latent import absorb_query, is_latent
from speccompile.compiler.step.layer_attention import LayerAttention, cached_layers
from speccompile.compiler.step.recurrent_state import RecurrentStates, steps_of
from speccompile.compiler.step.relative_bias import RelativeBias
from speccompile.compiler.step.repeated import grouped_heads, of_half, repeated_heads
from speccompile.contract import FLOAT_CACHE, FP8_CACHE
from speccompile.errors import UnsupportedModelError

HOOK = "speccompile"

# Arguments of transformers' attention functions without effect here: bookkeeping, or redundant with the mask.
_WITHOUT_EFFECT = {
    "cache",
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_router_logits",
    "position_embeddings",
    "position_ids",
    "sliding_window",
    "target_dtype",
    "use_cache",
}


@dataclass(frozen=True)
class MaskTag:
    """Replaces transformers' mask tensor: `visible(batch, head, query, key)`, on index tensors."""

    visible: Callable[..., Tensor]

    def __getitem__(self, parts: tuple[slice, ...]) -> "MaskTag":
        """Return the mask itself for a slice over all queries and keys: models that need only the last query slice
        there (Gemma 4)."""
        if any(part not in (slice(None), slice(0, None)) for part in parts):
            raise UnsupportedModelError(f"a layer attends with a part of its mask, {parts}")
        return self


@dataclass(frozen=True)
class AttentionCall:
    """Arguments of one attention besides its queries.

    layer: its number; source: number of the layer whose rows it attends to; tag: its mask from the mask interface;
    shift: heads by which values are rolled against their keys; by_distance: attention module whose bias depends on
    distances; all other fields: see `ops.attend`.
    """

    layer: int
    source: int
    tag: object = None
    scale: float = 1.0
    softcap: float = 0.0
    sinks: Tensor | None = None
    is_latent: bool = False
    shift: int = 0
    by_distance: nn.Module | None = None


class InStepKV(CacheLayerMixin):
    """In-step keys and values of one layer, in the order of the runs. n_attended: attentions since the last update."""

    is_compileable = True
    is_sliding = False
    n_seen = 0
    """Number of cached tokens that a model is told. It must not matter: positions are passed explicitly."""

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.n_attended = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: rows are stored as they come."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        self.keys = key_states if self.keys is None else torch.cat([self.keys, key_states], 2)
        self.values = value_states if self.values is None else torch.cat([self.values, value_states], 2)
        self.n_attended = 0
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return self.n_seen

    def get_max_length(self) -> int:
        return -1


class CachedPass(RecurrentStates, CrossRows, RelativeBias, Cache):
    """One round of a decoder: in-step rows over committed caches. A drafter runs several windows in one pass."""

    def __init__(
        self,
        caches: list[Tensor],
        length: Tensor,
        windows: list[int],
        skipped: frozenset[int] = frozenset(),
        layers: Sequence[LayerAttention] = (),
        dtype: str = FLOAT_CACHE,
        source_length: Tensor | None = None,
        rings: Collection[int] = (),
    ) -> None:
        """caches: key and value of each layer that is not skipped, and, if `layers` say so, its recurrent states and
        the caches of layers that it reads; length int64 [B]; windows: attention window of every layer; skipped: layers
        whose output is unused. dtype: of the stored caches. Where that is int8, in-step rows are rounded as well before
        anything attends to them: a row has one value in every window. source_length int64 [B]: rows of the source that
        count, of a decoder that attends to one. rings: layers whose caches are rings."""
        Cache.__init__(self, layers=[InStepKV() for _ in windows])
        every = [layer for layer in range(len(windows)) if layer not in skipped]
        self.kept, self.skipped = cached_layers(layers, skipped) if layers else every, skipped
        pairs = [[f"key.{layer}", f"value.{layer}"] for layer in range(len(windows))]
        names = [list(each.states(layer)) for layer, each in enumerate(layers)] if layers else pairs
        self.named = dict(zip((name for layer in self.kept for name in names[layer]), caches, strict=True))
        CrossRows.__init__(self, self.named, source_length)
        RecurrentStates.__init__(self, self.named, [each.carried for each in layers], length)
        self.caches, self.length, self.windows, self.dtype = caches, length, windows, dtype
        self.rings = frozenset(rings)
        self.positions = self.row_positions = length[:, None]
        self.visible: Tensor | None = None
        self.in_windows: Tensor | None = None  # what layers with a window see instead, if set after the positions
        self.biases: dict[int, Tensor] = {}

    def set_positions(
        self, positions: Tensor, row_positions: Tensor, visible: Tensor, count: Tensor | None = None
    ) -> None:
        """Set what the next run of the decoder may see.

        positions int64 [B, T] of the queries, row_positions int64 [B, R] of all in-step rows, visible bool [B, T, R].
        count int64 [B]: number of the queries' tokens that are no padding, which states need if another run of this
        pass follows; None: all.
        """
        self.positions, self.row_positions, self.visible, self.biases = positions, row_positions, visible, {}
        self.in_windows = None
        self.count, self.relative = count, None

    def bias(self, window: int) -> Tensor:
        """Return float32 [B, 1, T, R], added to the scores of in-step rows by a layer with this attention window."""
        if window not in self.biases:
            visible = self.visible
            if window:
                visible = visible if self.in_windows is None else self.in_windows
                reached = window_reference(self.positions, window)[:, :, None] - self.row_positions[:, None, :]
                visible = visible & (reached < abs(window))
            self.biases[window] = torch.where(visible, 0.0, ops.HIDDEN)[:, None]
        return self.biases[window]

    def attend(self, query: Tensor, call: "AttentionCall") -> Tensor:
        """Attend: [B, N, T, D] -> [B, N, T, E], see `ops.attend`; this cache has just received the rows."""
        rows, window = self.layers[call.source], self.windows[call.layer]
        if call.by_distance:  # its table may serve later layers, though it is skipped itself
            self.keep_relative(call.by_distance, self.named[f"key.{self.kept[0]}"].shape[2])
        if call.layer in self.skipped:
            return query.new_zeros((*query.shape[:3], (rows.keys if call.is_latent else rows.values).shape[3]))
        keys, values = self.named[f"key.{call.source}"], self.named[f"value.{call.source}"]
        if self.dtype != FLOAT_CACHE and (call.shift or call.is_latent):
            kind = "pairs values with other heads' keys" if call.shift else "has latent attention (MLA)"
            raise UnsupportedModelError(
                f"cache.dtype: received {self.dtype}, expected float: this model {kind}, whose cached "
                "rows are not those of a head",
                hint="remove cache.dtype, or set it to float",
            )
        own_keys, own = self.stored("key", rows.keys), self.stored("value", rows.values)
        if call.by_distance:
            return self.attend_by_distance(call.by_distance, query, (own_keys, own), (keys, values), call.scale)
        if call.shift:
            own, values = (each.roll(call.shift, 1) for each in (own, values))
        return ops.attend(
            query, own_keys, own, keys, values, self.length, window_reference(self.positions, window),
            self.bias(window).to(query.dtype), call.scale, call.softcap, abs(window), call.sinks, call.is_latent,
            call.source in self.rings,
        )  # fmt: skip

    def commit(self, rows: list[Tensor], count: Tensor | None = None) -> list[Tensor]:
        """Return the caches with rows [B, G, R, D] written after the committed ones, in the order of the caches, and
        states advanced by the first `count` int64 [B] rows. `count` is required if there are states."""
        left, committed = iter(rows), []
        for name, cache in self.updated.items():
            carried = self.carried.get(name)
            if carried is None:
                is_ring = int(name.rpartition(".")[2]) in self.rings
                committed.append(ops.commit(cache, self.stored(name, next(left)), self.length, 2, is_ring))
            else:
                assert count is not None, "states move on by a number of tokens"
                its = list(islice(left, carried.rows))
                committed.append(steps_of(carried, cache, self.length).state_after(its, count))
        return committed

    def stored(self, name: str, rows: Tensor) -> Tensor:
        """Return rows [B, G, R, D] with the values that the caches hold. name: key or value, and what follows."""
        return stored_rows(rows, self.dtype, name)

    def rows(self) -> list[Tensor]:
        """Return the in-step rows [B, G, R, D] of all caches, in the order of the caches: keys, values, and rows that
        advance states."""
        found = list[Tensor]()
        for name in self.updated:
            if name in self.carried:
                found += self.steps[name].rows
            else:
                kind, _, layer = name.partition(".")
                rows = self.layers[int(layer)]
                found.append(rows.keys if kind == "key" else rows.values)
        return found


def stored_rows(rows: Tensor, dtype: str, name: str) -> Tensor:
    """Return rows [B, G, R, D] with the values that caches of a dtype hold. name: of a cache, or its kind."""
    if dtype in (FLOAT_CACHE, FP8_CACHE):
        return rows if dtype == FLOAT_CACHE else ops.round_fp8(rows)
    return ops.quantize(rows, code_bits(dtype, name))


def window_reference(positions: Tensor, window: int) -> Tensor:
    """Return the reference positions for a window of the latest abs(window) ones: the end of each position's chunk if
    the window is one of chunks, else the positions themselves."""
    return positions - positions % -window - window - 1 if window < 0 else positions


_current: ContextVar[CachedPass] = ContextVar("current_pass")


@contextmanager
def attending_through(current: CachedPass) -> Iterator[None]:
    """Route all attention inside a `with` block through `current`."""
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    current = _current.get()
    by_distance = position_bias is not None and hasattr(module, "has_relative_attention_bias")
    if not by_distance:
        more["position_bias"] = position_bias
    unknown = sorted(name for name, given in more.items() if given is not None and name not in _WITHOUT_EFFECT)
    if unknown:
        raise UnsupportedModelError(f"{type(module).__name__} passes {', '.join(unknown)} to its attention")
    cross = current.cross_layer(key)
    if cross is not None:
        return current.attend_source(query, cross, scaling, float(softcap or 0.0)).transpose(1, 2).contiguous(), None
    call = _find_call(current, module, key, attention_mask, by_distance=by_distance)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    call = replace(call, scale=scale, softcap=float(softcap or 0.0), sinks=s_aux)
    context = _attend_cached(current, module, query, key, value, call)
    current.layers[call.source].n_attended += 1
    return context.transpose(1, 2).contiguous(), None


def _attend_cached(
    current: CachedPass, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, call: AttentionCall
) -> Tensor:
    """Attend to cached rows with queries [B, N, T, D] -> [B, N, T, E].

    key, value: as the module passes them. They are the cache's own rows, heads made of latent rows (MLA), the values of
    other heads (differential attention), or rows repeated for all heads of a group.
    """
    rows = current.layers[call.source]
    groups, times = rows.keys.shape[1], key.shape[1] // rows.keys.shape[1]
    if key is rows.keys and value is rows.values:
        return current.attend(query, call)
    if is_latent(module, rows.keys, rows.values):
        latent_query, outwards = absorb_query(module, query)
        return current.attend(latent_query, replace(call, is_latent=True)) @ outwards
    if key is rows.keys and value.shape == rows.values.shape:
        other = current.attend(query, replace(call, shift=groups // 2))
        return of_half(current.attend(query, call), other, rows.n_attended % 2)
    if times > 1 and value.shape[1] == times * rows.values.shape[1] == times * groups:
        return repeated_heads(current.attend(grouped_heads(query, groups, times), call), groups, times)
    raise UnsupportedModelError(f"{type(module).__name__} changes keys or values between its cache and attention")


def _find_call(current: CachedPass, module: nn.Module, key: Tensor, tag: object, *, by_distance: bool) -> AttentionCall:
    """Return which layer attends, and to whose rows. by_distance: whether scores have a bias for each distance.

    Rows are found by the keys. They are an earlier layer's if this layer has put none into the cache (Gemma 3n). Else
    the layer is the one that put them there, whatever `layer_idx` its module has: HRM and Zamba 2 run some modules
    several times, with a cache for each.
    """
    owners = (index for index, rows in enumerate(current.layers) if rows.keys is key)
    layer: int | None = getattr(module, "layer_idx", None)
    source = next(owners, layer)
    if source is None or current.layers[source].keys is None:
        raise UnsupportedModelError(f"{type(module).__name__} attends without a cache of its own")
    is_shared = layer is not None and layer > source and current.layers[layer].keys is None
    own = layer if is_shared and layer is not None else source
    return AttentionCall(own, source, tag, by_distance=module if by_distance else None)


def _mask(*args: object, mask_function: Callable[..., Tensor], **kwargs: object) -> MaskTag:
    return MaskTag(mask_function)


AttentionInterface.register(HOOK, _attention)
AttentionMaskInterface.register(HOOK, _mask)
