"""Schedules for running a graph in the proof: windows, some wide, some narrow, some batch slots idle, then drafts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from speccompile.bundle.sampling import ADJUSTED
from speccompile.compiler.prove.feeds import make_input
from speccompile.compiler.prove.graph_traits import all_given, allowed_width, carries, pairs_next
from speccompile.compiler.prove.source_feeds import source_values
from speccompile.contract import BATCH, Graph, Tensor
from speccompile.runtime.devices.engine import Array
from speccompile.tree import Tree, chain

DRAFTED = "next_"
"""Name prefix of outputs that hold drafts: tokens before numbers."""

RARE = 7
"""Distance in a text between tokens that a drafter lacks, if it lacks any."""


@dataclass(frozen=True)
class Schedule:
    """A text for each batch slot, and the widths of its windows. As with ragged prompts, later slots skip the first
    ones.

    tree: of the drafts. rounds: windows of decoding, each the tokens of a tree's nodes in every batch slot, over the
    text's first `rounds_at` tokens; none until `with_rounds` finds drafts that are accepted. overlap: tokens of a text
    window that the next one repeats (see `pairs` in the contract). chunk: the widest window of text. sources: of all
    batch slots, for a target with an encoder; features: their shape, for speech. told: see `is_told` below.
    """

    texts: list[list[int]]
    widths: list[int]
    tree: Tree | None = None
    rounds_at: int = 0
    rounds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    overlap: int = 0
    chunk: int = 1
    sources: tuple[list[int], ...] = ()
    features: tuple[int, int] | None = None
    told: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tree": None if self.tree is None else list(self.tree.parents)}

    def windows(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """Yield width, tokens fed to each batch slot (none or, in slots fed before, the whole window), and committed
        tokens."""
        committed = [0] * len(self.texts)
        for step, width in enumerate(self.widths):
            again = [min(self.overlap, start) for start in committed]
            fed = [width + again[row] if step >= row % 2 else 0 for row in range(len(self.texts))]
            starts = [start - more for start, more in zip(committed, again, strict=True)]
            yield max(fed), fed, starts
            committed = [a + b for a, b in zip(starts, fed, strict=True)]

    def source(self, row: int) -> list[int] | None:
        """Return the source of a batch slot, None without any."""
        return self.sources[row] if self.sources else None

    @property
    def ends(self) -> list[int]:
        """Return the number of tokens committed in each batch slot after the text."""
        *_, (_, fed, committed) = self.windows()
        return [a + b for a, b in zip(committed, fed, strict=True)]


@dataclass(frozen=True)
class ScheduledWindow:
    """One run of a round's graphs. values: written by the host, by buffer; fed: tokens of each batch slot, committed:
    those before; drafted: whether all but one are drafts; before: an earlier run, for the states alone; is_told:
    whether the token after a text window replaces the target's prediction before the draft."""

    widths: dict[str, int]
    values: dict[str, Array]
    fed: list[int]
    committed: list[int]
    drafted: bool
    before: tuple["ScheduledWindow", ...] = ()
    is_told: bool = False

    def input(self, tensor: Tensor) -> Array:
        """Return the value of an input that is no state."""
        shape = tensor.concrete_shape(self.widths)
        if tensor.role == "index":
            return np.arange(shape[0], dtype=tensor.dtype)
        return self.values[tensor.buffer].astype(tensor.dtype).reshape(shape)


def make_script(
    vocabulary_size: int,
    batch: int,
    max_length: int,
    chunk: int,
    far: int,
    tree: Tree | None = None,
    common: int | None = None,
    *,
    repeats: int = 0,
) -> Schedule:
    """Return a schedule of random tokens: prefill, single tokens and drafts in turn, 24 tokens beyond position `far`.

    common: first token that a drafter lacks; every text has some, to cover them. repeats: most distinct tokens
    in the first half of a text, which the second half then repeats for lookups; 0 for texts that do not repeat.
    """
    wanted = min(max_length, max(40, far + 24))
    widths: list[int] = []
    for width in (min(chunk, 17), 1, 5, 1, 2):
        widths += [width] if sum(widths) + width <= wanted else []
    while sum(widths) < wanted:
        widths.append(min(chunk, 24, wanted - sum(widths)))
    random = np.random.default_rng(0)
    texts = random.integers(0, vocabulary_size, (batch, sum(widths) + 1))
    if common is not None and common < vocabulary_size:
        texts[:, 2::RARE] = random.integers(common, vocabulary_size, texts[:, 2::RARE].shape)
    if repeats:
        half, own = texts.shape[1] // 2, batch
        if repeats < half:  # the first text repeats in all batch slots, which may share a table
            texts, own = np.take_along_axis(texts, random.integers(0, repeats, texts.shape), 1), 1
        texts[:, half : 2 * half] = texts[:own, :half]
    committed = sum(widths) - (widths[0] if batch > 1 else 0)  # in the batch slots with the fewest
    longest = max_length - 1 - (tree.depth if tree else 0)
    return Schedule(texts.tolist(), widths, tree, max(0, min(committed, longest)), chunk=chunk)


def windows(script: Schedule, graphs: Sequence[Graph]) -> Iterator[ScheduledWindow]:
    """Yield all windows of a round's graphs. In a `step`, with tree drafts, and with states that advance over accepted
    tokens, the text is given."""
    script, names, is_given = overlapped(script, graphs), {graph.name for graph in graphs}, all_given(graphs)
    for step, (width, fed, committed) in enumerate(script.windows()):
        texts = zip(script.texts, committed, strict=True)
        path = np.array([text[start : start + width + 1] for text, start in texts])
        given = fed if is_given else [min(n, 1) for n in fed]
        yield _window(graphs, script, step, path, given, fed, committed)
    if "draft" in names and len(names) == 1:
        return
    for step, tokens in enumerate(script.rounds):
        batch = len(tokens)
        path = np.concatenate([np.array(tokens), np.zeros((batch, 1), np.int64)], 1)
        counts = [1] * batch, [path.shape[1] - 1] * batch, [script.rounds_at] * batch
        before = tuple(_from_the_beginning(graphs, script)) if carries(graphs) else ()
        yield replace(_window(graphs, script, step, path, *counts), drafted=True, before=before, is_told=False)


def _from_the_beginning(graphs: Sequence[Graph], script: Schedule) -> Iterator[ScheduledWindow]:
    """Yield the text before a round of drafts again: states cannot go back."""
    batch, start = len(script.texts), 0
    while start < script.rounds_at:
        width = min(script.chunk, script.rounds_at - start)
        path = np.array([text[start : start + width + 1] for text in script.texts])
        yield _window(graphs, script, 0, path, [width] * batch, [width] * batch, [start] * batch)
        start += width


def overlapped(script: Schedule, graphs: Iterable[Graph]) -> Schedule:
    """Return the schedule as the runtime feeds a drafter that pairs features with the next token: if one graph makes
    the path and drafts, a window ends with the target's prediction, which the next window repeats."""
    is_fused = any(graph.name == "step" for graph in graphs)
    return replace(script, overlap=1) if is_fused and pairs_next(graphs) else script


def _window(
    graphs: Sequence[Graph],
    script: Schedule,
    step: int,
    path: Array,
    given: list[int],
    fed: list[int],
    committed: list[int],
) -> ScheduledWindow:
    width = path.shape[1] - 1
    widths = {BATCH: len(fed), "window": width, "logit_rows": width, "catch_up": width + 1, "history": 8}
    widths |= {"allowed": allowed_width(graphs, step), ADJUSTED: 8}
    values = {
        "window": path[:, :width],
        "path": path,
        "n_path": np.array(fed),
        "n_given": np.array(given),
        "n_total": np.array(fed),
        "length": np.array(committed),
    }
    values |= source_values(graphs, script.sources, script.features)
    inputs = (t for graph in graphs for t in graph.inputs if t.role in ("io", "link") and t.buffer not in values)
    for tensor in list(inputs):
        values[tensor.buffer] = make_input(tensor, tensor.concrete_shape(widths), step, path, script.tree or chain(1))
    is_told = (pairs_next(graphs) or script.told) and not script.overlap
    return ScheduledWindow(widths, values, fed, committed, drafted=False, is_told=is_told)
