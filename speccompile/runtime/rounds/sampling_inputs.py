"""Host inputs of graphs that sample: settings once per sequence, uniforms, the penalty history and adjustments of
logits in every round."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sampling import ADJUSTED, GREEDY, SETTINGS, SamplingParams
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.logit_adjustments import LogitAdjustments
from speccompile.runtime.rounds.random import Purpose, Uniforms

PER_DRAFT = {"accept_uniforms": Purpose.ACCEPT, "draft_uniforms": Purpose.DRAFT}


class SamplingInputs:
    """Writes the inputs for sampling. `inputs`: names of all inputs of the round's graphs."""

    def __init__(self, engine: Engine, manifest: Manifest, inputs: Collection[str]) -> None:
        self._engine, self._batch, self._tokens = engine, manifest.batch_size, manifest.tokens
        self._settings = {name: engine.host_view(name, (self._batch,)) for name in SETTINGS}
        shape = (self._batch, self._tokens)
        self._per_draft = [(engine.host_view(n, shape), purpose) for n, purpose in PER_DRAFT.items() if n in inputs]
        self._new_tokens: dict[int, Array] = {}
        self._streams: dict[int, list[tuple[Array, Uniforms]]] = {}
        self.history = PenaltyHistory(engine, manifest)
        self._adjustments = LogitAdjustments(engine, manifest) if ADJUSTED in inputs else None
        for slot in range(self._batch):
            self._set(slot, GREEDY)  # zeros would not be neutral

    def admit(self, slot: int, row: SequenceState, *, drafting: bool) -> None:
        """Write the settings of a sequence, and start its random numbers. drafting: whether its rounds have drafts."""
        each = row.sampling
        self._set(slot, each)
        # A round may go beyond the last token that the sequence may have.
        numbers = Uniforms(each.seed, each.sequence, Purpose.NEW_TOKEN)
        self._new_tokens[slot] = numbers.draw(row.max_new_tokens + self._tokens + 1)
        self._streams[slot] = [
            (array[slot], Uniforms(each.seed, each.sequence, purpose))
            for array, purpose in (self._per_draft if drafting else [])
        ]
        if each.repetition_penalty != 1:
            self.history.admit(slot, row.all_token_ids)
        if self._adjustments is not None:
            self._adjustments.admit(slot, row)

    def release(self, slot: int) -> None:
        """Reset the slot's settings after its sequence has left."""
        self._set(slot, GREEDY)
        self.history.release(slot)
        if self._adjustments is not None:
            self._adjustments.release(slot)

    def write(self, rows: range, taking: Mapping[int, SequenceState], logit_rows: int) -> int:
        """Write the random numbers of the next run, for the sequences that take a token from it; other sequences draw
        nothing. Write the history of `rows` too, and return its width."""
        uniforms = self._engine.host_view("uniforms", (self._batch, logit_rows))
        for slot, row in taking.items():
            start = len(row.token_ids)
            uniforms[slot] = self._new_tokens[slot][start : start + logit_rows]
            for numbers, stream in self._streams[slot]:
                numbers[:] = stream.draw(self._tokens)
            self.history.add(slot, row)
        return self.history.write(rows)

    def adjusted_width(self, taking: Sequence[int], logit_rows: int) -> int:
        """Return the width of the adjustments in a run from which these slots take tokens."""
        return 1 if self._adjustments is None else self._adjustments.width(taking, logit_rows)

    def adjust(
        self, taking: Sequence[int], window: Array, n_given: Sequence[int], n_total: Sequence[int], logit_rows: int
    ) -> None:
        """Write the adjustments of the run: see `LogitAdjustments.write`."""
        if self._adjustments is not None:
            self._adjustments.write(taking, window, n_given, n_total, logit_rows)

    def _set(self, slot: int, sampling: SamplingParams) -> None:
        for name, array in self._settings.items():
            array[slot] = getattr(sampling, name)


class PenaltyHistory:
    """Tokens subject to the repetition penalty: the distinct tokens of every penalized sequence. The rest of a line
    repeats one of them.

    A run without penalized sequences reads lines of one token. Other runs read lines of a power of two or of the
    capacity, so that few shapes occur.
    """

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch, self._most = engine, manifest.batch_size, manifest.max_length
        self._seen: dict[int, dict[int, None]] = {}
        self._lengths: dict[int, int] = {}
        """Slot -> number of tokens of its penalized sequence that are included."""
        self._written: dict[tuple[int, int], int] = {}
        """Slot and width -> number of tokens that the line holds."""

    def admit(self, slot: int, text: Collection[int]) -> None:
        """Begin a penalized sequence with its first tokens."""
        self.release(slot)
        self._seen[slot], self._lengths[slot] = dict.fromkeys(text), len(text)

    def release(self, slot: int) -> None:
        self._seen.pop(slot, None)
        self._written = {key: count for key, count in self._written.items() if key[0] != slot}

    def add(self, slot: int, row: SequenceState) -> None:
        """Add the new tokens of a sequence."""
        if slot in self._seen:
            self._seen[slot].update(dict.fromkeys(row.token_ids[self._lengths[slot] - len(row.prompt) :]))
            self._lengths[slot] = len(row)

    def write(self, rows: Iterable[int]) -> int:
        """Write the lines of these slots, and return their width."""
        penalized = [slot for slot in rows if slot in self._seen]
        most = max((len(self._seen[slot]) for slot in penalized), default=1)
        width = min(1 << (most - 1).bit_length(), self._most)
        lines = self._engine.host_view("history", (self._batch, width))
        for slot in penalized:
            seen, written = self._seen[slot], self._written.get((slot, width), 0)
            if not written:
                lines[slot] = next(iter(seen))
            if written < len(seen):
                lines[slot, written : len(seen)] = list(islice(seen, written, None))
                self._written[slot, width] = len(seen)
        return width
