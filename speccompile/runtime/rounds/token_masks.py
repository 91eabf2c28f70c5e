"""The input `allowed`: for every batch slot, the tokens that may follow the nodes of its round."""

from collections.abc import Mapping, Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import TIMESTAMPS
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.constraints.constraint import INPUT
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.draft_parents import DraftParents


class TokenMasks:
    """Writes the input `allowed` before every run of the target. The drafts are known by then."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch, self._vocabulary = engine, manifest.batch_size, manifest.vocabulary_size
        self._parents = DraftParents(engine, manifest)
        timed = any(tensor.name == TIMESTAMPS for graph in manifest.graphs for tensor in graph.inputs)
        self._timed = engine.host_view(TIMESTAMPS, (self._batch,)) if timed else None

    def width(self, rows: Mapping[int, SequenceState]) -> int:
        """Return the width of the input: the vocabulary if a sequence that takes tokens of this run is constrained,
        else 1."""
        constrained = (row.is_active and row.matcher is not None for row in rows.values())
        return self._vocabulary if any(constrained) else 1

    def write(
        self,
        rows: Mapping[int, SequenceState],
        window: Array,
        n_given: Sequence[int],
        n_total: Sequence[int],
        logit_rows: int,
    ) -> None:
        """Write the masks. rows: the sequences that take tokens of this run, by batch slot; masks of other slots are
        not used. window int64 [B, W]; n_given, n_total: one number per slot."""
        width = self.width(rows)
        if self._timed is not None:
            for place, row in rows.items():
                self._timed[place] = isinstance(row.matcher, RuleMatcher) and row.matcher.writes_times
        allowed = self._engine.host_view(INPUT, (self._batch, logit_rows, width))
        if width == 1:
            allowed[:] = True
            return
        for place, row in rows.items():
            if row.matcher is None or not row.is_active:
                allowed[place] = True
            else:
                drafts = window[place, n_given[place] : n_total[place]].tolist()
                row.matcher.write(allowed[place], drafts, self._parents.of(place))
