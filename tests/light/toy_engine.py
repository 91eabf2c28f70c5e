"""An engine that runs the toy models behind the contract, in numpy.

It is as unkind as the contract allows: whatever a graph leaves undefined is filled with values that the loop must never
use, and a row that was not committed fails the test when it is read.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.bundle import Manifest
from speccompile.bundle.sampling import GREEDY, SETTINGS, SamplingParams
from speccompile.contract import NEXT_ROUND_INPUTS
from speccompile.runtime.devices.engine import Array, Run, buffer_dtypes
from speccompile.tree import Tree, chain, from_branching, from_paths
from tests.light.toy_models import (
    CANDIDATE_PROBS,
    CANDIDATES,
    VOCABULARY,
    Adjustments,
    candidates,
    distribution,
    drafts,
    draw,
    target,
)
from tests.light.toy_models import logits as logits_after

UNWRITTEN = -1
UNDEFINED = 10**9

STATIC = from_branching([2, 2, 1])
CACHES = ("target", "drafter", "drafter.next")
"""Tokens; the last, those behind each one, of a drafter that keeps them beside the next one."""
DYNAMIC = (from_branching([2, 2]), from_paths([[0], [1], [2], [0, 0], [1, 0], [0, 0, 0]]))
"""What the drafter of dynamic trees chooses from."""


class Grown(Tree):
    """A tree whose nodes are behind their parents, and in no order but that."""

    def __post_init__(self) -> None:
        assert all(parent < node for node, parent in enumerate(self.parents))


class ToyEngine:
    """Implements `speccompile.runtime.devices.engine.Engine`."""

    threads = 1
    compares = False
    """Whether the drafter must have read what the target has; where graphs are timed it has not."""

    def __init__(self, manifest: Manifest, *, has_ranges: bool = False) -> None:
        """has_ranges: a run may be over some rows alone."""
        self.supports_batch_slices, self.lines = has_ranges, range(manifest.batch_size)
        self.batch, self.tokens = manifest.batch_size, manifest.tokens
        self.tree, self.sample = manifest.tree, manifest.sample
        self.graphs = {graph.name for graph in manifest.graphs}
        self.inputs = {tensor.name for graph in manifest.graphs for tensor in graph.inputs}
        self.runs: list[str] = []
        self.into_next = self.wants_logits = False
        self.verified: list[list[tuple[int, int]]] = []
        """Of each verify, every row's n_given and length."""
        self.histories: list[list[list[int]]] = []
        """Of each verify of a bundle that samples."""
        rows = manifest.max_length + max(manifest.prefill_chunk, self.tokens + 1) + self.tokens + 1
        self.caches = {name: np.full((self.batch, rows), UNWRITTEN) for name in CACHES}
        self._dtypes = buffer_dtypes(manifest.graphs)
        self._arrays: dict[tuple[str, tuple[int, ...]], Array] = {}

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> Array:
        if buffer.endswith(".rows"):
            return self.caches[buffer.removesuffix(".rows")]
        return self._arrays.setdefault((buffer, shape), np.zeros(shape, self._dtypes[buffer]))

    def has(self, graph: str) -> bool:
        return graph in self.graphs

    def memory(self) -> dict[str, int]:
        return {}

    def address(self, buffer: str) -> int:
        return self.caches[buffer].ctypes.data

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        lines = range(self.batch) if rows is None else rows
        assert self.supports_batch_slices or len(lines) == self.batch
        verify, draft = self._verify_row, self._draft_row
        row_steps = {"verify": [verify], "draft": [draft], "step": [verify, draft]}[graph]

        def run() -> None:
            self.runs.append(graph)
            self.into_next, self.wants_logits = graph == "step", "logits" in optional
            self.lines = lines
            if verify in row_steps:
                counts = zip(self._counts("n_given").tolist(), self._counts("length").tolist(), strict=True)
                self.verified.append(list(counts)[lines.start : lines.stop])
                if "history" in self.inputs:
                    self.histories.append(self.host_view("history", (self.batch, widths["history"])).tolist())
            for row_step in row_steps:
                for row in lines:
                    row_step(row, widths)

        return run

    def _counts(self, name: str) -> Array:
        return self.host_view(name, (self.batch,))

    def _carried(self) -> Array:
        """Number of tokens that the state of each row has read."""
        return self.host_view("target.state.0", (self.batch, 1, 1, 1))[:, 0, 0, 0]

    def _features(self, row: int, width: int) -> Array:
        """Return what a run of the target leaves for the drafter's: it has lines for the run's rows alone."""
        return self.host_view("features", (len(self.lines), width, 1))[row - self.lines.start, :, 0]

    def _per_draft(self, name: str, row: int, *more: int) -> Array:
        return self.host_view(name, (self.batch, self.tokens, *more))[row]

    def _verify_row(self, row: int, widths: Mapping[str, int]) -> None:
        width = widths["window"]
        window = self.host_view("window", (self.batch, width))[row].tolist()
        given, total, length = (int(self._counts(name)[row]) for name in ("n_given", "n_total", "length"))
        path: list[int] = []
        bonus, nodes = 0, [0]
        if given:
            assert given <= total <= width, "more tokens than the window holds"
            assert UNDEFINED not in window[:total], "drafts of a drafter that was behind"
            assert total - given < widths["logit_rows"], "more drafts than logits"
            before = self._committed("target", row, length)
            if "target.state.0" in self._dtypes and length:
                assert self._carried()[row] == length, "a token was given twice to what carries a state, or never"
            path, nodes, bonus = self._walk(row, before, window[:given], window[given:total], widths)
        self._commit("target", row, length, path, width)
        if given and "target.state.0" in self._dtypes:
            self._carried()[row] = length + len(path)
        self.host_view("path", (self.batch, width + 1))[row] = [*path, bonus, *[0] * (width - len(path))]
        self._counts("n_path")[row] = len(path)
        if self.tree != "chain":
            padding = [UNDEFINED] * (widths["logit_rows"] - len(nodes))
            self.host_view("nodes", (self.batch, widths["logit_rows"]))[row] = nodes + padding
        if "features" in self._dtypes:
            self._features(row, width)[: len(path)] = path

    def _walk(
        self, row: int, before: list[int], given: list[int], drafted: list[int], widths: Mapping[str, int]
    ) -> tuple[list[int], list[int], int]:
        """Return the accepted tokens, the node before each new one, and the bonus token."""
        tree = self._tree_of(row, len(drafted))
        sampling, seen = self._settings(row, widths.get("history", 1))
        path, nodes = list(given), [0]
        if self.wants_logits:
            self._write_logits(row, before + given, tree, drafted, widths["logit_rows"])
        uniforms = (
            self.host_view("uniforms", (self.batch, widths["logit_rows"]))[row] if "uniforms" in self.inputs else ()
        )
        lines = self._adjustments(row, widths)
        while True:
            children = {drafted[child - 1]: child for child in reversed(tree.children[nodes[-1]])}
            uniform = float(uniforms[len(nodes) - 1]) if len(uniforms) else 0.0
            adjusted = lines[nodes[-1]] if lines else {}
            token = self._choose(row, before + path, sampling, seen | set(path), uniform, children, nodes[-1], adjusted)
            if token not in children:
                return path, nodes, token
            path.append(token)
            nodes.append(children[token])

    def _choose(
        self,
        row: int,
        text: list[int],
        sampling: SamplingParams,
        seen: set[int],
        uniform: float,
        children: Mapping[int, int],
        node: int,
        adjusted: Adjustments,
    ) -> int:
        """Return the next token. Where drafts are sampled: multi-draft rejection, siblings in turn."""
        if sampling == GREEDY and not adjusted:
            return target(text)
        probs = distribution(text, sampling, seen, adjusted)
        if not self.sample or sampling.temperature == 0:
            return draw(probs, uniform)
        accept = self._per_draft("accept_uniforms", row)
        draft_probs = np.zeros(VOCABULARY)
        if children:
            ids = self._per_draft("draft_ids", row, CANDIDATES)[node]
            draft_probs[ids] = self._per_draft("draft_probs", row, CANDIDATES)[node]
        for token, child in sorted(children.items(), key=lambda item: item[1]):
            if accept[child - 1] * draft_probs[token] < probs[token]:
                return token
            probs = np.maximum(probs - draft_probs, 0)
            draft_probs[token] = 0
            probs, draft_probs = probs / probs.sum(), draft_probs / draft_probs.sum()
        return draw(probs, uniform)

    def _settings(self, row: int, history: int) -> tuple[SamplingParams, set[int]]:
        if "history" not in self.inputs:
            return GREEDY, set()
        settings = {name: self._counts(name)[row].item() for name in SETTINGS}
        assert settings["repetition_penalty"] > 0, "the settings of an idle row must be sound"
        return SamplingParams(**settings), set(self.host_view("history", (self.batch, history))[row].tolist())

    def _adjustments(self, row: int, widths: Mapping[str, int]) -> list[Adjustments]:
        """Return what is added to the logits of each node; nothing where the inputs are as narrow as can be."""
        if "adjusted" not in self.inputs:
            return []
        width = widths.get("adjusted", 1)
        shape = (self.batch, widths["logit_rows"], width)
        tokens, biases, penalties = (self.host_view(name, shape)[row] for name in ("adjusted", "biases", "penalties"))
        if width == 1:
            assert not biases.any()
            assert not penalties.any()
        pairs = np.stack([biases, penalties], 2)
        for node, line in enumerate(tokens):
            for token in set(line.tolist()):
                assert len(np.unique(pairs[node, line == token], axis=0)) == 1, "a token with two values in one row"
        return [
            {token: tuple(each) for token, each in zip(line.tolist(), values.tolist(), strict=True) if any(each)}
            for line, values in zip(tokens, pairs, strict=True)
        ]

    def _tree_of(self, row: int, count: int) -> Tree:
        """Return the tree of a row's window with so many drafts."""
        if self.tree == "chain" or not count:
            return chain(count)
        return STATIC if self.tree == "static" else Grown(tuple(self._parents("parents")[row, : count + 1].tolist()))

    def _parents(self, name: str) -> Array:
        return self.host_view(name, (self.batch, self.tokens + 1))

    def _write_logits(self, row: int, text: list[int], tree: Tree, drafted: list[int], logit_rows: int) -> None:
        logits = self.host_view("logits", (len(self.lines), logit_rows, VOCABULARY))[row - self.lines.start]
        logits[:] = np.nan
        for node, lineage in enumerate(tree.root_paths):
            logits[node] = logits_after(text + [drafted[above - 1] for above in lineage[1:]])

    def _draft_row(self, row: int, widths: Mapping[str, int]) -> None:
        """Draft as a drafter with its own caches does it, which lag the target's."""
        path = self.host_view("path", (self.batch, widths["window"] + 1))[row].tolist()
        n_path, length = int(self._counts("n_path")[row]), int(self._counts("length")[row])
        if "features" in self._dtypes:
            assert self._features(row, widths["window"])[:n_path].tolist() == path[:n_path]
        if self.into_next and self._is_behind(row, length, path[0]):  # a step drafts for all rows, whoever wants it
            self._drafted("next_window", self.tokens + 1)[row] = UNDEFINED
            self._drafted("next_total")[row] = 1 + self.tokens
            return
        if "pairs" in self.inputs and n_path:
            following = [*self._committed("target", row, length)[1:], path[0]] if length else []
            assert self.caches["drafter.next"][row, :length].tolist() == following, (
                "a row was paired with a wrong token"
            )
            self.caches["drafter.next"][row, length:] = UNWRITTEN
            self.caches["drafter.next"][row, length : length + n_path] = path[1 : n_path + 1]
        start = max(0, n_path - (widths["catch_up"] - 1))
        text = self._committed("drafter", row, length + start) + path[start : n_path + 1] if n_path else path[:1]
        if self.compares and n_path:
            assert text[:-1] == self._committed("target", row, length + n_path), "the drafter has read another text"
        is_plain = self.tree == "chain" and not self.sample
        guessed = drafts(text, self.tokens) if is_plain else self._draft_tree(row, text, widths)
        # Tokens of a tree do not lie in a line: they are caught up with when it is known which were accepted.
        kept = guessed[:-1] if self.tree == "chain" else []
        width = widths["catch_up"] + (self.tokens - 1 if self.tree == "chain" else 0)
        self._commit("drafter", row, length + start, path[start : n_path + 1] + kept, width)
        padding = [0] * (self.tokens - len(guessed))
        self._drafted("next_window", self.tokens + 1)[row] = [path[n_path], *guessed, *padding]
        self._drafted("next_total")[row] = 1 + len(guessed)

    def _draft_tree(self, row: int, text: list[int], widths: Mapping[str, int]) -> list[int]:
        """Return the drafts of a tree, the best or drawn; sometimes none."""
        tree = {"chain": chain(self.tokens), "static": STATIC, "dynamic": DYNAMIC[text[-1] % 2]}[self.tree]
        draws = self.sample and self._settings(row, widths["history"])[0].temperature > 0
        if self.tree == "dynamic":
            self._drafted("next_parents", self.tokens + 1)[row] = tree.parents if text[-1] % 11 else UNDEFINED
        if self.sample:
            self._drafted("next_ids", self.tokens, CANDIDATES)[row] = UNDEFINED
        if text[-1] % 11 == 0 and not self.sample:
            return []
        guessed: list[int] = []
        for node, children in enumerate(tree.children):
            at_node = text + [guessed[above - 1] for above in tree.root_paths[node][1:]]
            ids, weights = candidates(at_node), CANDIDATE_PROBS.astype(np.float64)
            if draws and children:
                self._drafted("next_ids", self.tokens, CANDIDATES)[row, node] = ids
                self._drafted("next_probs", self.tokens, CANDIDATES)[row, node] = CANDIDATE_PROBS
            for rank, child in enumerate(children):
                place = draw(weights, self._per_draft("draft_uniforms", row)[child - 1]) if draws else rank
                weights[place] = 0
                guessed.append(ids[place])
        return guessed

    def _is_behind(self, row: int, length: int, token: int) -> bool:
        """Return whether the drafter has not read all that came before, or the token behind it."""
        text = self._committed("target", row, length)
        try:
            if self._committed("drafter", row, length) != text:
                return True
        except AssertionError:
            return True
        return "pairs" in self.inputs and self.caches["drafter.next"][row, :length].tolist() != [*text, token][1:]

    def _drafted(self, name: str, *shape: int) -> Array:
        """Return what is drafted, under its own name or where the next round reads it."""
        return self.host_view(name if self.into_next else NEXT_ROUND_INPUTS[name], (self.batch, *shape))

    def _committed(self, name: str, row: int, length: int) -> list[int]:
        text: list[int] = self.caches[name][row, :length].tolist()
        assert UNWRITTEN not in text, f"a row of the {name} was read that was never committed"
        return text

    def _commit(self, name: str, row: int, length: int, tokens: Sequence[int], width: int) -> None:
        assert length + width <= self.caches[name].shape[1], f"the {name} writes past the end of its buffer"
        self.caches[name][row, length : length + width] = UNWRITTEN
        self.caches[name][row, length : length + len(tokens)] = tokens
