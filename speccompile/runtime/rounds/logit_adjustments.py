"""The inputs `adjusted`, `biases` and `penalties`: what logit bias, frequency and presence penalty add to logits."""

from collections.abc import Mapping, Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import ADJUSTED, NARROWEST_ADJUSTED, SamplingParams, most_adjusted
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.draft_parents import DraftParents


class LogitAdjustments:
    """Writes the inputs before every run of the target. The drafts are known by then: behind a draft, it counts as
    written, so that the target chooses what it would choose without drafts."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch, self._parents = engine, manifest.batch_size, DraftParents(engine, manifest)
        self._most = most_adjusted(manifest.vocabulary_size, manifest.max_length, manifest.tokens)
        self._slots: dict[int, AdjustedTokens] = {}

    def admit(self, slot: int, row: SequenceState) -> None:
        """Begin a sequence, whose new tokens count."""
        self.release(slot)
        if row.sampling.adjusts_logits:
            self._slots[slot] = AdjustedTokens(row.sampling)

    def release(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._slots.pop(slot, None)

    def width(self, rows: Mapping[int, SequenceState], logit_rows: int) -> int:
        """Return the width of the inputs: 1, or a power of two if a sequence that takes tokens of this run is
        adjusted."""
        needed = 0
        for slot, row in rows.items():
            if slot in self._slots and row.is_active:
                self._slots[slot].add(row.token_ids)
                needed = max(needed, len(self._slots[slot].tokens) + logit_rows - 1)
        return min(max(NARROWEST_ADJUSTED, 1 << (needed - 1).bit_length()), self._most) if needed else 1

    def write(
        self,
        rows: Mapping[int, SequenceState],
        window: Array,
        n_given: Sequence[int],
        n_total: Sequence[int],
        logit_rows: int,
    ) -> None:
        """Write the lines of the sequences that take tokens of this run; those of other slots are not used. Arguments
        as in `TokenMasks.write`."""
        width = self.width(rows, logit_rows)
        if width == 1:
            return
        shape = (self._batch, logit_rows, width)
        arrays = [self._engine.host_view(name, shape) for name in (ADJUSTED, "biases", "penalties")]
        for place, row in rows.items():
            tokens, biases, penalties = (array[place] for array in arrays)
            own = self._slots.get(place)
            if own is None or not row.is_active:
                tokens[:], biases[:], penalties[:] = 0, 0, 0
            else:
                drafts = window[place, n_given[place] : n_total[place]].tolist()
                own.write(tokens, biases, penalties, drafts, self._parents.of(place))


class AdjustedTokens:
    """Tokens of a sequence whose logits change: those with a bias, and, with a penalty, the new ones."""

    def __init__(self, sampling: SamplingParams) -> None:
        self._sampling, self._read = sampling, 0
        self.tokens = [token for token, _ in sampling.logit_bias]
        self._places = {token: place for place, token in enumerate(self.tokens)}
        self._biases = [bias for _, bias in sampling.logit_bias]
        self._counts = [0] * len(self.tokens)

    def add(self, token_ids: Sequence[int]) -> None:
        """Count the new tokens of the sequence, as far as they are not counted yet."""
        if self._sampling.counts_tokens:
            for token in token_ids[self._read :]:
                if (place := self._places.get(token)) is None:
                    place = self._places[token] = len(self.tokens)
                    self.tokens.append(token)
                    self._counts.append(0)
                self._counts[place] += 1
            self._read = len(token_ids)

    def write(
        self, tokens: Array, biases: Array, penalties: Array, drafts: Sequence[int], parents: Sequence[int] | None
    ) -> None:
        """Write the lines of all nodes, [R, K] each. parents: of the nodes, None for a chain."""
        count, sampling = len(self.tokens), self._sampling
        tokens[:, :count], biases[:, : len(self._biases)], biases[:, len(self._biases) :] = self.tokens, self._biases, 0
        penalties[:, :count] = [sampling.penalty(each) for each in self._counts]
        if sampling.counts_tokens:
            count = self._write_drafts(tokens, penalties, drafts, parents)
        # Padding repeats the first token, with its values: equal places of a row must have equal values.
        tokens[:, count:], biases[:, count:], penalties[:, count:] = tokens[:, :1], biases[:, :1], penalties[:, :1]

    def _write_drafts(
        self, tokens: Array, penalties: Array, drafts: Sequence[int], parents: Sequence[int] | None
    ) -> int:
        """Count the drafts before each node. Return the number of the lines' tokens."""
        places = dict[int, int]()
        for token in drafts:
            if token not in self._places and token not in places:
                places[token] = len(self.tokens) + len(places)
                tokens[:, places[token]], penalties[:, places[token]] = token, 0
        paths: list[dict[int, int]] = [{}]  # of each node: token -> its number of times among the drafts up to it
        for node, token in enumerate(drafts[: len(tokens) - 1], 1):
            path = dict(paths[node - 1 if parents is None else parents[node]])
            path[token] = path.get(token, 0) + 1
            paths.append(path)
            for each, times in path.items():
                place = self._places.get(each)
                known = 0 if place is None else self._counts[place]
                penalties[node, places[each] if place is None else place] = self._sampling.penalty(known + times)
        return len(self.tokens) + len(places)
