"""Probe a model's attention, and prove in eager torch that the hook covers all of it.

An architecture that attends elsewhere would export without an error and be wrong. So before any export the model runs
over the same tokens as transformers runs it and through the hook: in several windows over a committed cache, and at the
model's last positions. Every layer must have passed through the hook, and the logits must be the same.
"""

from bisect import bisect_left

import torch
from torch import Tensor, nn

from speccompile.bundle.sources import is_cross_state
from speccompile.compiler.checkpoints.refused_types import HINT, SPARSE_KINDS
from speccompile.compiler.models.load import first_line
from speccompile.compiler.models.probed_source import cross_rows, empty_caches, source_length
from speccompile.compiler.models.sourced import SourcedModel
from speccompile.compiler.step.attention import (
    HOOK,
    AttentionCall,
    CachedPass,
    MaskTag,
    attending_through,
    window_reference,
)
from speccompile.compiler.step.decoder import CacheShape, Decoder, call
from speccompile.compiler.step.layer_attention import LayerAttention
from speccompile.compiler.step.layers import attending
from speccompile.compiler.step.positions import at_positions
from speccompile.compiler.step.recurrence import recurring
from speccompile.compiler.step.recurrent_state import RecurrentState
from speccompile.errors import UnsupportedModelError
from speccompile.progress import progress_counter

TOLERANCE = 3e-5
"""Largest difference of logits, hook against eager, relative to the largest logit. float32."""

CARRIED_TOLERANCE = 2e-4
"""Tolerance of models with recurrent states, where rounding errors propagate from token to token: transformers' own
implementations of one recurrence differ as much. Random Mamba: 4e-5, of which transformers' float32 has 1.2e-5 against
its float64."""

PROBE_TOKENS = 24
LONGEST_PROBE = 512

_RUNS = 9
"""Runs of the model: one to see its layers, six in windows, two at its last positions."""


class _Recorder(CachedPass):
    """A pass that attends within itself and records the request of every layer."""

    def __init__(self, n_layers: int, length: Tensor) -> None:
        super().__init__([length] * (2 * n_layers), length, [0] * n_layers)
        self.tags: dict[int, MaskTag] = {}
        self.sources: dict[int, int] = {}
        self.found: dict[int, list[RecurrentState]] = {}
        self.crossed: dict[int, tuple[int, int]] = {}

    def attend(self, query: Tensor, call: AttentionCall) -> Tensor:
        rows = self.layers[call.source]
        if rows.keys.shape[2] > query.shape[2]:
            raise UnsupportedModelError(f"layer {call.layer} attends more than once a token")
        if not isinstance(call.tag, MaskTag):
            raise UnsupportedModelError(f"layer {call.layer} attends without a mask from transformers' mask interface")
        self.tags[call.layer], self.sources[call.layer] = call.tag, call.source
        return query.new_zeros((*query.shape[:3], (rows.keys if call.is_latent else rows.values).shape[3]))

    def attend_source(self, query: Tensor, layer: int, scaling: float | None, softcap: float) -> Tensor:
        keys, values = self.cross[layer]
        if keys.shape != values.shape:
            raise UnsupportedModelError(f"keys and values of layer {layer} over the source have other widths")
        self.crossed[layer] = keys.shape[1], keys.shape[3]
        return torch.zeros_like(query)

    def convolve(self, rows: Tensor, weight: Tensor) -> Tensor:
        self._carries("conv", (1, weight.shape[1] - 1, weight.shape[0]), 1)
        return rows

    def recur(self, query: Tensor, rows: list[Tensor]) -> Tensor:
        key, value = rows[:2]
        self._carries("state", (value.shape[1], key.shape[3], value.shape[3]), len(rows))
        return value

    def _carries(self, kind: str, shape: tuple[int, int, int], rows: int) -> None:
        layer, index = self.next_state(kind)
        known = self.found.setdefault(layer, [])
        if any((each.kind, each.index) == (kind, index) for each in known):
            raise UnsupportedModelError(f"layer {layer} runs through its {kind} {index} more than once a token")
        known.append(RecurrentState(kind, index, shape, rows))

    def layer(self, index: int, max_length: int) -> LayerAttention:
        """Return a layer's attention. Raise UnsupportedModelError for a mask that is no causal window."""
        carried = tuple(self.found.get(index, ()))
        if index not in self.tags:
            return LayerAttention((0, 0), (0, 0), 0, carried)
        source = self.sources[index]
        rows = self.layers[source]
        key, value = ((each.shape[1], each.shape[3]) for each in (rows.keys, rows.values))
        window = attention_window(self.tags[index], max_length)
        shared = None if source == index else source
        return LayerAttention(key, value, window, carried, shared, self.crossed.get(index))


@torch.no_grad()
def probe(model: nn.Module, shape: CacheShape) -> Decoder:
    """Return the model with the hook, proven equal to transformers' eager on random tokens.

    Raise UnsupportedModelError, naming the architecture, if a layer bypasses the hook, attends in a way that the hook
    cannot express, or the logits differ.
    """
    name = type(model).__name__
    try:
        _check_head(model)
        _check_layer_types(model)
        _check_indexers(model)
        with (
            progress_counter(f"probing {name}", _RUNS, "runs") as advance,
            model.register_forward_hook(lambda *_: advance(1)),
        ):
            if isinstance(model, SourcedModel):
                model.read(_random_tokens(model, min(PROBE_TOKENS, shape.source))[0].tolist())
            decoder = Decoder(model, _layers(model, shape.max_length), shape)
            _compare_windows(model, decoder)
            _compare_last_positions(model, decoder)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{name} cannot be compiled: {error}", hint=error.hint or HINT) from error
    except (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # Model code that expects something else of its cache or masks may raise anything; the answer is the same.
        raise UnsupportedModelError(
            f"{name} cannot be compiled: it does not run behind the attention hook ({first_line(error)})",
            hint=HINT,
        ) from error
    return decoder


def with_hook(model: nn.Module, layers: list[LayerAttention], shape: CacheShape) -> Decoder:
    """Return a decoder over a model whose layers `probe` has found before."""
    model.set_attn_implementation(HOOK)
    return Decoder(model, layers, shape)


def _check_head(model: nn.Module) -> None:
    if model.get_output_embeddings() is None:
        raise UnsupportedModelError(
            "it has no output embeddings; the rows whose logits are wanted are chosen before them"
        )


def _check_layer_types(model: nn.Module) -> None:
    kinds = getattr(model.config, "layer_types", None) or []
    found = [index for index, kind in enumerate(kinds) if kind in SPARSE_KINDS]
    if found:
        raise UnsupportedModelError(
            f"{len(found)} of its {len(kinds)} layers choose the rows that they attend to, the first is layer "
            f"{found[0]} of type {kinds[found[0]]}",
            hint="choose a model whose layers attend to all rows, or to a window of them",
        )


def _check_indexers(model: nn.Module) -> None:
    """Raise for sparse attention: transformers gives each such layer an indexer module with a separate cache."""
    for name, module in model.named_modules():
        if type(module).__name__.endswith("Indexer"):
            raise UnsupportedModelError(
                f"its attention sees but the rows that {type(module).__name__} chooses, the first is {name}",
                hint="choose a model whose layers see all rows, or a window of them",
            )


def _layers(model: nn.Module, max_length: int) -> list[LayerAttention]:
    """Run three tokens through the hook and read off each layer's shapes, attention window and states."""
    n_layers = model.config.num_hidden_layers
    zero = torch.zeros(1, dtype=torch.int64)
    recorder = _Recorder(n_layers, zero)
    positions = torch.arange(3)[None]
    recorder.set_positions(positions, positions, torch.ones(1, 3, 3, dtype=torch.bool).tril())
    if isinstance(model, SourcedModel):
        recorder.cross = dict(enumerate(cross_rows(model, HOOK)))
    model.set_attn_implementation(HOOK)
    with attending_through(recorder), recurring(model, recorder):
        call(model, torch.zeros_like(positions), recorder)
    seen = recorder.tags.keys() | recorder.found.keys()
    missed = sorted((attending(model) if seen else set(range(n_layers))) - seen)
    if missed:
        raise UnsupportedModelError(
            f"{len(missed)} of its {n_layers} layers do not go through transformers' attention interface, "
            f"the first is layer {missed[0]}"
        )
    return [recorder.layer(index, max_length) for index in range(n_layers)]


def attention_window(tag: MaskTag, max_length: int) -> int:
    """Return the window of a mask: 0 for all positions up to the query's own, n for the n latest ones, -n for those of
    its own chunk of n. Raise UnsupportedModelError for any other mask."""
    keys, index = torch.arange(max_length), torch.tensor(0)

    def seen(query: int) -> Tensor:
        return torch.as_tensor(tag.visible(index, index, torch.tensor(query), keys)).expand(max_length).bool()

    limit = bisect_left(range(max_length), True, key=lambda query: not seen(query)[0])  # later ones do not see it
    limit = 0 if limit == max_length else limit
    asked = {0, 1, 2, limit - 1, limit, limit + 1, 2 * limit - 1, 2 * limit, max_length // 2, max_length - 1}
    queries = sorted(query for query in asked if 0 <= query < max_length)
    for window in dict.fromkeys((limit, -limit)):
        wrong = [query for query in queries if not torch.equal(seen(query), _expected(query, keys, window))]
        if not wrong:
            return window
    raise UnsupportedModelError(
        f"its mask is neither causal nor a causal sliding window (seen from position {wrong[0]})"
    )


def _expected(query: int, keys: Tensor, window: int) -> Tensor:
    if window == 0:
        return keys <= query
    return (keys <= query) & (window_reference(torch.tensor(query), window) - keys < abs(window))


def _compare_windows(model: nn.Module, decoder: Decoder) -> None:
    """Compare three windows, the last of one token, each over a cache that holds the previous ones."""
    longest = min((abs(layer.window) for layer in decoder.layers if layer.window), default=0) + PROBE_TOKENS
    n_tokens = min(longest, LONGEST_PROBE, decoder.shape.max_length)
    tokens = _random_tokens(model, n_tokens)
    expected = _eager(model, tokens)
    positions = torch.arange(n_tokens)[None]
    _check_equal(
        _eager(model, tokens, positions),
        expected,
        "only models that count their positions from 0, one a token, can be compiled",
        how="given the positions 0, 1, ..",
    )
    caches = empty_caches(decoder, n_tokens, HOOK)
    start = 0
    for part in tokens.tensor_split(sorted({n_tokens // 2, n_tokens - 1} - {0}), dim=1):
        end = start + part.shape[1]
        current = _begin(decoder, caches, start, torch.arange(start, end)[None])
        got = decoder.run(current, part)
        _check_equal(got, expected[:, start:end], "some of its attention happens elsewhere", _tolerance(decoder))
        if start == 0:
            _check_rows(decoder, part, expected)
        committed = iter(current.commit(current.rows(), torch.tensor([part.shape[1]])))
        caches = [cache if is_cross_state(name) else next(committed) for name, cache in current.named.items()]
        start = end


def _check_rows(decoder: Decoder, tokens: Tensor, expected: Tensor) -> None:
    """Check that logits of chosen rows equal those rows of all logits: rows are chosen before the head."""
    index = torch.tensor([[tokens.shape[1] - 1, 0]])
    current = _begin(decoder, empty_caches(decoder, 1, HOOK), 0, torch.arange(tokens.shape[1])[None])
    got = decoder.run(current, tokens, index)
    if got.shape[1] != 2:
        raise UnsupportedModelError(
            f"its logits have {got.shape[1]} rows where 2 were chosen before its output embeddings: "
            "they are computed somewhere else"
        )
    hint = "its logits depend on more than the row they belong to"
    _check_equal(got, expected[:, index[0]], hint, _tolerance(decoder))


def _compare_last_positions(model: nn.Module, decoder: Decoder) -> None:
    """Compare one window at the last positions, over an empty cache that claims to hold another number of tokens.

    Finds buffers that grow with the position, and positions that do not come from `position_ids`.
    """
    n_tokens = min(PROBE_TOKENS, decoder.shape.max_length)
    start = decoder.shape.max_length - n_tokens
    # transformers counts chunks from the first token of its input.
    start -= start % max([1, *(-layer.window for layer in decoder.layers)])
    positions = torch.arange(start, start + n_tokens)[None]
    tokens = _random_tokens(model, n_tokens)
    expected = _eager(model, tokens, positions)
    current = _begin(decoder, empty_caches(decoder, 1, HOOK), 0, positions)
    for rows in current.layers:
        rows.n_seen = start
    _check_equal(
        decoder.run(current, tokens),
        expected,
        f"from position {start} on, it uses more than the position_ids it is given",
        _tolerance(decoder),
    )


def _random_tokens(model: nn.Module, n_tokens: int) -> Tensor:
    tokens = torch.randint(model.config.vocab_size, (1, n_tokens), generator=torch.Generator().manual_seed(0))
    # transformers warns of padding without an attention mask
    return torch.where(
        tokens == (getattr(model.config, "pad_token_id", None) or 0), model.config.vocab_size - 1, tokens
    )


def _eager(model: nn.Module, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return float32 logits [1, T, V] of transformers, without a cache. positions [1, T]: replace transformers' own."""
    model.set_attn_implementation("eager")
    if positions is None:
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits.float()
    else:
        with at_positions(model, positions):
            logits = model(input_ids=tokens, position_ids=positions, use_cache=False).logits.float()
    model.set_attn_implementation(HOOK)
    wanted = (1, tokens.shape[1], model.config.vocab_size)
    if logits.shape != wanted:
        raise UnsupportedModelError(f"its logits have shape {list(logits.shape)}, expected {list(wanted)}")
    if not logits.isfinite().all():
        raise UnsupportedModelError(
            "transformers' own logits are not finite", hint="check the checkpoint for weights that are NaN or infinite"
        )
    return logits


def _begin(decoder: Decoder, caches: list[Tensor], length: int, positions: Tensor) -> CachedPass:
    """Return a pass over `length` committed rows with a causal window at `positions`."""
    width = positions.shape[1]
    current = decoder.begin(caches, torch.tensor([length]), source_length(decoder))
    current.set_positions(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
    return current


def _tolerance(decoder: Decoder) -> float:
    """Return the tolerance of a decoder's output against transformers."""
    return CARRIED_TOLERANCE if decoder.is_recurrent else TOLERANCE


def _check_equal(
    got: Tensor, expected: Tensor, hint: str, limit: float = TOLERANCE, *, how: str = "through the attention hook"
) -> None:
    largest, difference = expected.abs().max().item(), (got - expected).abs().max().item()
    if not difference <= limit * largest:
        raise UnsupportedModelError(
            f"{how} its logits differ from transformers' eager by {difference:.2g} "
            f"(the largest logit is {largest:.2g})",
            hint=hint,
        )
