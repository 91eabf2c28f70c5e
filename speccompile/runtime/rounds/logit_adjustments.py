"""The inputs `adjusted`, `biases` and `penalties`: what logit bias, frequency and presence penalty add to logits."""

from collections.abc import Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import ADJUSTED, NARROWEST_ADJUSTED, most_adjusted
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
            self._slots[slot] = AdjustedTokens(row)

    def release(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._slots.pop(slot, None)

    def width(self, taking: Sequence[int], logit_rows: int) -> int:
        """Return the width of the inputs: 1, or a power of two if one of the slots that take tokens of this run is
        adjusted."""
        needed = [self._slots[slot].update() + logit_rows - 1 for slot in taking if slot in self._slots]
        width = 1 << (max(needed, default=1) - 1).bit_length()
        return min(max(NARROWEST_ADJUSTED, width), self._most) if needed else 1

    def write(
        self, taking: Sequence[int], window: Array, n_given: Sequence[int], n_total: Sequence[int], logit_rows: int
    ) -> None:
        """Write the lines of the slots that take tokens of this run; those of other slots are not used. window int64
        [B, W]; n_given, n_total: one number per slot."""
        width = self.width(taking, logit_rows)
        if width == 1:
            return
        shape = (self._batch, logit_rows, width)
        arrays = [self._engine.host_view(name, shape) for name in (ADJUSTED, "biases", "penalties")]
        for place in taking:
            tokens, biases, penalties = (array[place] for array in arrays)
            tokens[:], biases[:], penalties[:] = 0, 0, 0
            if place in self._slots:
                drafts = window[place, n_given[place] : n_total[place]].tolist()
                self._slots[place].write(tokens, biases, penalties, drafts, self._parents.of(place))


class AdjustedTokens:
    """Tokens of a sequence whose logits change: those with a bias, and, with a penalty, the new ones."""

    def __init__(self, row: SequenceState) -> None:
        self._row, self._sampling, self._read = row, row.sampling, 0
        self._biases = [bias for _, bias in row.sampling.logit_bias]
        self._places = {token: place for place, (token, _) in enumerate(row.sampling.logit_bias)}
        """Token -> its place in a line."""
        self._counts = [0] * len(self._places)

    def update(self) -> int:
        """Count the new tokens of the sequence, as far as they are not counted yet. Return the number of tokens that
        are adjusted."""
        if self._sampling.counts_tokens:
            for token in self._row.token_ids[self._read :]:
                place = self._places.setdefault(token, len(self._places))
                if place == len(self._counts):
                    self._counts.append(0)
                self._counts[place] += 1
            self._read = len(self._row.token_ids)
        return len(self._places)

    def write(
        self, tokens: Array, biases: Array, penalties: Array, drafts: Sequence[int], parents: Sequence[int] | None
    ) -> None:
        """Write the lines of all nodes, [R, K] each, which are zeros. parents: of the nodes, None for a chain."""
        count, sampling = len(self._places), self._sampling
        tokens[:, :count] = list(self._places)
        biases[:, : len(self._biases)] = self._biases
        penalties[:, :count] = [sampling.penalty(each) for each in self._counts]
        if sampling.counts_tokens:
            count = self._write_drafts(tokens, penalties, drafts, parents)
        # Padding repeats the first token, with its values: equal tokens of a row must have equal values.
        tokens[:, count:], biases[:, count:], penalties[:, count:] = tokens[:, :1], biases[:, :1], penalties[:, :1]

    def _write_drafts(
        self, tokens: Array, penalties: Array, drafts: Sequence[int], parents: Sequence[int] | None
    ) -> int:
        """Count the drafts before each node. Return the number of tokens in a line."""
        places = dict(self._places)
        for token in drafts:
            tokens[:, places.setdefault(token, len(places))] = token
        paths: list[dict[int, int]] = [{}]  # of each node: token -> its number of times among the drafts up to it
        for node, token in enumerate(drafts, 1):
            path = dict(paths[node - 1 if parents is None else parents[node]])
            path[token] = path.get(token, 0) + 1
            paths.append(path)
            for each, times in path.items():
                known = self._counts[places[each]] if places[each] < len(self._counts) else 0
                penalties[node, places[each]] = self._sampling.penalty(known + times)
        return len(places)
