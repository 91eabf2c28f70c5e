"""Contracts of the traced graphs: inputs and outputs of a round's modules, named as in `speccompile.contract`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from speccompile.bundle.caches import QUANTIZED_KINDS, STORED_KINDS, code_bits, has_codes
from speccompile.bundle.media import AXES, MEDIA, MEDIA_BEHIND, MEDIA_NEXT, MEDIA_OFFSETS
from speccompile.bundle.sources import (
    AUDIO,
    ENCODED,
    ENCODED_COMPONENTS,
    SOURCE,
    TIMESTAMPS,
    is_cross_state,
    length_input,
    tokens_input,
)
from speccompile.compiler.models.encode_source import READS, EncodeSource
from speccompile.compiler.step.draft import Drafter, State
from speccompile.compiler.step.sampling import Adjustments, Settings
from speccompile.compiler.step.verify import Verify
from speccompile.compiler.step.window import TreeLayout
from speccompile.contract import (
    BATCH,
    NEXT_ROUND_INPUTS,
    Dimension,
    Graph,
)
from speccompile.contract import Tensor as Spec


@dataclass(frozen=True)
class DraftWidth:
    """Sizes of the drafts that `verify` needs. tokens: N; nodes: of the decoding window, the root included, N + 1 plus
    the drafter's rows that are never accepted; candidates: C, 0 for deterministic drafts; successors: K, number of best
    tokens that it reads."""

    tokens: int = 0
    nodes: int = 1
    candidates: int = 0
    successors: int = 0

    @classmethod
    def of(cls, drafter: Drafter) -> "DraftWidth":
        return cls(
            drafter.tokens, drafter.tokens + drafter.n_unaccepted_rows + 1, drafter.candidates, drafter.target_top_k
        )


def verify_graph(verify: Verify, width: DraftWidth, *, is_sampling: bool, constraints: bool = False) -> Graph:
    """Return the contract of the `verify` graph for drafts of this width."""
    batch, vocabulary = rows_of(verify.decoder.shape.batch_size), verify.decoder.model.config.vocab_size
    shapes = verify.decoder.cache_shapes()
    caches = [_state(f"target.{name}", "float32", (batch, *each[1:])) for name, each in shapes.items()]
    inputs = [
        _io("window", (batch, "window")),
        _io("n_given", (batch,)),
        _io("n_total", (batch,)),
        _io("length", (batch,)),
        Spec("logit_rows", "int64", ("logit_rows",), "logit_rows", "index"),
    ]
    inputs += [length_input(batch)] if verify.decoder.has_source else []
    inputs += _acceptance_inputs(verify, width, batch, is_sampling=is_sampling)
    if verify.adapters is not None:
        inputs.append(_io("adapter", (batch,)))
        matrices = verify.adapters.shapes(verify.decoder.model)
        inputs += [_io(name, shape, dtype="float32") for name, shape in matrices.items()]
    inputs += media_inputs(verify, batch)
    if constraints:
        inputs += _masks(verify, batch)
    outputs = [
        _io("path", (batch, "window+1")),
        _io("n_path", (batch,)),
        Spec("logits", "float32", (batch, "logit_rows", vocabulary), "logits", "optional"),
    ]
    if isinstance(verify.shape, TreeLayout):
        outputs.append(_io("nodes", (batch, "logit_rows")))
        if not verify.shape.is_constant:
            inputs.append(_io("parents", (batch, width.nodes)))
    if verify.taps:
        outputs.append(Spec("features", "float32", (batch, "window", verify.n_features), "features", "link"))
    if verify.successors:
        outputs += _ranked(batch, verify.successors)
    return Graph("verify", (*inputs, *caches), (*outputs, *_updates(caches)))


def _acceptance_inputs(verify: Verify, width: DraftWidth, batch: Dimension, *, is_sampling: bool) -> list[Spec]:
    """Return the inputs on which acceptance depends: sampling, random numbers, and the drafts' probabilities."""
    found = list[Spec]()
    if is_sampling:
        found += [*_settings(batch), _io("uniforms", (batch, "logit_rows"), dtype="float32"), *_adjustments(batch)]
    if verify.acceptance.speculative is not None:
        found.append(_io("accept_uniforms", (batch, width.tokens), dtype="float32"))
    return [*found, *_proposals(("draft_ids", "draft_probs"), batch, width)] if width.candidates else found


def _masks(verify: Verify, batch: Dimension) -> list[Spec]:
    """Return the inputs that say which tokens may follow."""
    found = [_io("allowed", (batch, "logit_rows", "allowed"), dtype="bool")]
    return found if verify.acceptance.first_timestamp is None else [*found, _io(TIMESTAMPS, (batch,), dtype="bool")]


def media_inputs(verify: Verify, batch: Dimension) -> list[Spec]:
    """Return the inputs for pictures; none of a target that sees none."""
    merged = verify.media
    if merged is None:
        return []
    found = [_io("media", ("media", merged.width), dtype="float32"), _io("media_rows", (batch, "window"))]
    found += [_io("media_blocks", (batch, "window"))] if merged.both_ways else []
    return found + ([_io("media_offsets", (batch, AXES, "window"))] if merged.axes else [])


def _drafters_media(drafter: Drafter, batch: Dimension) -> list[Spec]:
    """Return the inputs of a drafter for pictures: rows of one that pairs features with tokens, and positions."""
    read, found = drafter.media, list[Spec]()
    if read is None:
        return found
    if drafter.pairs_next_token:
        found += [_io(MEDIA, (MEDIA, read.width), dtype="float32"), _io(MEDIA_NEXT, (batch, "window"))]
        found += [_io(MEDIA_OFFSETS, (batch, AXES, "window"))] if read.axes else []
    return [*found, _io(MEDIA_BEHIND, (batch,))] if read.axes else found


def quantized_states(verify: Verify) -> dict[str, int]:
    """Return the target's caches that hold codes and scales -> bits of a code."""
    return _coded("target", verify.decoder.cache_shapes(), verify.decoder.shape.dtype)


def _coded(component: str, caches: Iterable[str], dtype: str) -> dict[str, int]:
    """Return those of a component's caches that hold codes and scales -> bits of a code."""
    names = [name for name in caches if has_codes(dtype) and name.partition(".")[0] in QUANTIZED_KINDS]
    return {f"{component}.{name}": code_bits(dtype, name) for name in names}


def ring_buffers(graph: Graph, rings: Mapping[int, int]) -> dict[str, int]:
    """Return buffer -> window of the target's caches that are rings, scales included. rings: layer -> window."""
    names = [each.buffer.split(".") for each in graph.inputs if each.role == "state"]
    caches = (parts for parts in names if parts[1] in STORED_KINDS)
    return {".".join(parts): rings[int(parts[2])] for parts in caches if int(parts[2]) in rings}


def draft_graph(drafter: Drafter, rows: int, n_features: int = 0) -> Graph:
    """Return the contract of the `draft` graph. rows: batch size; n_features: width of all taps that it reads."""
    width, batch = DraftWidth.of(drafter), rows_of(rows)
    states, borrowed = (_states(its, batch) for its in (drafter.states(), drafter.target_caches()))
    inputs = [_io("path", (batch, "window+1")), _io("n_path", (batch,)), _io("length", (batch,))]
    if drafter.reads_source or drafter.source_rows:
        inputs.append(length_input(batch))
    if drafter.source_rows:
        inputs.append(tokens_input(batch, drafter.source_rows))
    if drafter.reads_whole_batch and batch == BATCH:
        inputs.append(Spec("batch_rows", "int64", (batch,), "batch_rows", "index"))
    if drafter.catch_up:
        name = "pairs" if drafter.pairs_next_token else "catch_up"
        inputs.append(Spec(name, "int64", ("catch_up",), name, "index"))
    if drafter.taps:
        inputs.append(Spec("features", "float32", (batch, "window", n_features), "features", "link"))
    if drafter.target_top_k:
        inputs += _ranked(batch, drafter.target_top_k)
    inputs += _drafters_media(drafter, batch)
    outputs = [_io("next_window", (batch, width.nodes)), _io("next_total", (batch,))]
    if drafter.shape is None:
        outputs.append(_io("next_parents", (batch, width.nodes)))
    if drafter.candidates:
        inputs += [*_settings(batch), _io("draft_uniforms", (batch, drafter.tokens), dtype="float32")]
        outputs += _proposals(("next_ids", "next_probs"), batch, width)
    outputs = [replace(spec, buffer=NEXT_ROUND_INPUTS[spec.name]) for spec in outputs]
    return Graph("draft", (*inputs, *states, *borrowed), (*outputs, *_updates(states)))


def quantized_rows(name: str, encoder: EncodeSource) -> dict[str, int]:
    """Return the caches that a graph which encodes a source writes as codes and scales -> bits of a code."""
    return _coded(ENCODED_COMPONENTS[name], encoder.names, encoder.shape.dtype)


def encoder_graph(name: str, encoder: EncodeSource) -> Graph:
    """Return the contract of a graph that encodes a source, of this name."""
    batch = rows_of(encoder.shape.batch_size)
    caches = [
        _state(f"{ENCODED_COMPONENTS[name]}.{each}", "float32", (batch, *shape[1:]))
        for each, shape in encoder.shapes.items()
    ]
    features, states = encoder.feature_shape, encoder.states
    read = _io(SOURCE, (batch, SOURCE)) if features is None else _io(AUDIO, (batch, *features), dtype="float32")
    shared = [] if states is None else [Spec(ENCODED, "float32", (batch, *states), ENCODED, "link")]
    if encoder.sharing == READS:
        return Graph(name, (*shared, *caches), tuple(map(_updated, caches)))
    return Graph(name, (read, *caches), (*shared, *map(_updated, caches)))


def rows_of(batch_size: int) -> Dimension:
    """Return the first dimension of batched tensors: a symbolic one if there are several batch slots, because a run may
    use fewer."""
    return BATCH if batch_size > 1 else 1


def _ranked(batch: Dimension, successors: int) -> list[Spec]:
    shapes: dict[str, tuple[Dimension, ...]] = {
        "successors": (batch, "logit_rows", successors), "row_tokens": (batch, "logit_rows")
    }  # fmt: skip
    return [Spec(name, "int64", shape, name, "link") for name, shape in shapes.items()]


def _settings(batch: Dimension) -> list[Spec]:
    shapes: dict[str, tuple[Dimension, ...]] = {"history": (batch, "history")}
    integers = ("top_k", "history")
    return [
        _io(name, shapes.get(name, (batch,)), dtype="int64" if name in integers else "float32")
        for name in Settings._fields
    ]


def _adjustments(batch: Dimension) -> list[Spec]:
    shape = (batch, "logit_rows", "adjusted")
    dtypes = ("int64", "float32", "float32")
    return [_io(name, shape, dtype=dtype) for name, dtype in zip(Adjustments._fields, dtypes, strict=True)]


def _proposals(names: tuple[str, str], batch: Dimension, width: DraftWidth) -> list[Spec]:
    shape = (batch, width.tokens, width.candidates)
    return [_io(name, shape, dtype=dtype) for name, dtype in zip(names, ("int64", "float32"), strict=True)]


def _io(name: str, shape: tuple[Dimension, ...], dtype: str = "int64") -> Spec:
    return Spec(name, dtype, shape, name, "io")


def _states(states: Iterable[State], batch: Dimension) -> list[Spec]:
    return [
        _state(
            each.name,
            str(each.dtype).removeprefix("torch."),
            (batch, *each.shape[1:]) if each.is_batched else each.shape,
        )
        for each in states
    ]


def _state(name: str, dtype: str, shape: tuple[Dimension, ...]) -> Spec:
    return Spec(name, dtype, shape, name, "state")


def _updates(states: Iterable[Spec]) -> tuple[Spec, ...]:
    """Return the outputs that update states: those with rows of a source are only read."""
    return tuple(_updated(state) for state in states if not is_cross_state(state.buffer))


def _updated(state: Spec) -> Spec:
    return Spec(f"{state.name}.out", state.dtype, state.shape, state.buffer, "state")
