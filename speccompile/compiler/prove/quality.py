"""Quality of a precision: perplexity of texts, and agreement with float32. No torch: any source of logits.

A text of n tokens has n - 1 positions: each predicts the next token. Positions are numbered through all texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.prove.feeds import make_input
from speccompile.contract import BATCH, COMPONENTS, Graph, has_recurrent_states, with_fixed_batch
from speccompile.errors import ProofError
from speccompile.progress import progress_counter
from speccompile.runtime.devices.engine import Engine
from speccompile.tree import chain

Texts = Sequence[Sequence[int]]
Logits = NDArray[np.float32]
Block = tuple[int, Logits]
"""A position, and the logits [n, V] of it and the following ones."""

MAX_STORED_LOGPROBS = 1 << 25
"""Maximum number of stored log-probabilities, 128 MB: of every position, or of every second, third, .. one."""

_AT_A_TIME = 1 << 22  # logits that become float64 at a time
_LOGITS = 1 << 24  # of one window, all batch slots together: 64 MB


class Predictions(NamedTuple):
    """A model's predictions at n positions. losses float64 [n]: negative log-likelihood of the next token, in nats;
    best int64 [n]; logprobs float32 [k, V]: of k positions at equal distances, the first included."""

    losses: NDArray[np.float64]
    best: NDArray[np.int64]
    logprobs: NDArray[np.float32]

    @property
    def perplexity(self) -> float:
        """Return exp of the mean loss."""
        return float(np.exp(self.losses.mean()))


def predictions(blocks: Iterable[Block], texts: Texts, vocabulary_size: int, who: str) -> Predictions:
    """Collect predictions from the logits of every position, in any order. Raise ProofError, naming `who`, for a loss
    that is infinite or NaN."""
    behind = np.concatenate([np.asarray(text[1:], np.int64) for text in texts])
    count = len(behind)
    distance = -(-count * vocabulary_size // MAX_STORED_LOGPROBS)
    losses, best = np.full(count, np.nan), np.full(count, -1)
    logprobs = np.zeros((-(-count // distance), vocabulary_size), np.float32)
    for start, logits in _parts(blocks, max(1, _AT_A_TIME // vocabulary_size)):
        found, places = _log_softmax(logits), np.arange(start, start + len(logits))
        losses[places] = -found[np.arange(len(found)), behind[places]]
        best[places] = logits.argmax(-1)
        kept = places % distance == 0
        logprobs[places[kept] // distance] = found[kept]
    if not np.isfinite(losses).all():
        wrong = int(np.argmin(np.isfinite(losses)))
        raise ProofError(
            f"{who} gives the token behind position {wrong} of the texts a loss of {losses[wrong]}, expected a number",
            hint="the precision's range is too small for this model, or the model never says this token",
        )
    return Predictions(losses, best, logprobs)


def agreement(found: Predictions, float32: Predictions) -> dict[str, float]:
    """Return perplexity; same_argmax: share of positions with float32's best token; kl_divergence: of `found` from
    float32, mean over the stored positions, in nats: sum p (log p - log q), p of float32 (Kullback & Leibler 1951)."""
    divergences = [_divergence(p, q) for p, q in zip(float32.logprobs, found.logprobs, strict=True)]
    return {
        "perplexity": round(found.perplexity, 4),
        "same_argmax": round(float((found.best == float32.best).mean()), 4),
        "kl_divergence": round(max(0.0, float(np.mean(divergences))), 6),  # rounding alone can make it negative
    }


def engine_logits(engine: Engine, verify: Graph, texts: Texts, chunk: int, rows: int = 1) -> Iterator[Block]:
    """Yield the engine's logits of every position, teacher-forced through `verify`, with one text per batch slot, or
    `rows` texts at once for a dynamic batch.

    A chain's window holds one given token, and text instead of drafts: all rows are committed unchanged, accepted or
    not, and the host moves `length` past them. With tree drafts, a window gives the logits of its last given token
    only: windows of one token. So do targets with recurrent states, which advance over accepted tokens only.
    """
    (logits,) = (tensor for tensor in with_fixed_batch(verify, rows).outputs if tensor.name == "logits")
    batch, _, vocabulary_size = logits.shape
    assert isinstance(batch, int)
    assert isinstance(vocabulary_size, int)
    is_one_by_one = any(tensor.name == "nodes" for tensor in verify.outputs) or has_recurrent_states(
        [verify], COMPONENTS[0]
    )
    longest = max(map(len, texts)) - 1
    width = 1 if is_one_by_one else max(1, min(chunk, longest, _LOGITS // (batch * vocabulary_size)))
    teacher = _Teacher(engine, verify, batch, width, vocabulary_size)
    start = 0
    with progress_counter("reading texts", sum(len(text) - 1 for text in texts), "tokens") as advance:
        for first in range(0, len(texts), batch):
            group = [text[:-1] for text in texts[first : first + batch]]
            starts = [start + sum(map(len, group[:row])) for row in range(len(group))]
            for at, row, found in teacher.read(group):
                yield starts[row] + at, found
                advance(len(found))
            start += sum(map(len, group))


class _Teacher:
    """`verify`, bound at one width, and its buffers on the host."""

    def __init__(self, engine: Engine, verify: Graph, batch: int, width: int, vocabulary_size: int) -> None:
        widths = {BATCH: batch, "window": width, "logit_rows": width, "history": 1, "allowed": 1}
        self.width, self.run = width, engine.bind("verify", widths, ("logits",))
        self.window = engine.host_view("window", (batch, width))
        self.logits = engine.host_view("logits", (batch, width, vocabulary_size))
        counts = ("n_given", "n_total", "length")
        self.n_given, self.n_total, self.length = (engine.host_view(name, (batch,)) for name in counts)
        for tensor in verify.inputs:
            if tensor.role in ("io", "link") and tensor.name not in ("window", *counts):  # of sampling, of trees
                shape = tensor.concrete_shape(widths)
                tree = chain(shape[1] - 1 if len(shape) > 1 else 0)
                engine.host_view(tensor.buffer, shape)[:] = make_input(tensor, shape, 0, self.window, tree)

    def read(self, texts: Texts) -> Iterator[tuple[int, int, Logits]]:
        """Yield (position, batch slot, logits after it) for a window's tokens, for texts in the slots of one batch."""
        for start in range(0, max(map(len, texts)), self.width):
            for array in (self.window, self.n_given, self.n_total, self.length):
                array[:] = 0
            parts = {row: text[start : start + self.width] for row, text in enumerate(texts) if start < len(text)}
            for row, part in parts.items():
                self.window[row, : len(part)] = part
                self.n_given[row], self.n_total[row], self.length[row] = 1, len(part), start
            self.run()
            for row, part in parts.items():
                yield start, row, self.logits[row, : len(part)].copy()


def _parts(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """Yield the same positions in blocks of at most `size`."""
    for start, logits in blocks:
        for place in range(0, len(logits), size):
            yield start + place, logits[place : place + size]


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def _divergence(p: NDArray[np.float32], q: NDArray[np.float32]) -> float:
    """Return the divergence of two rows of log-probabilities; tokens that p excludes add nothing."""
    possible = p > -np.inf
    wanted, got = p[possible].astype(np.float64), q[possible].astype(np.float64)
    return float((np.exp(wanted) * (wanted - got)).sum())
