"""Speculative sampling in numpy over a table of probabilities, right by default and wrong in ways to choose.

It has what `prove.distribution` asks of a bundle, and nothing of the compiler: a few thousand generations in
milliseconds.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.filters import Reference, shaped

VOCABULARY, DEPTH = 16, 2


@dataclass(frozen=True)
class Rules:
    """How drafts are made and verified. siblings: drafts at every depth, tried in turn.

    certain: drafts are the drafter's best tokens. The others are mistakes: see the tests.
    """

    siblings: int = 1
    certain: bool = False
    accepts_all: bool = False
    residual: bool = True
    removes_siblings: bool = True
    filters_bonus: bool = True
    filters_drafts: bool = True
    certain_as_drawn: bool = False


def tables() -> tuple[np.ndarray, np.ndarray]:
    """Return logits [V, V] after every token: the target's, and those of a drafter that is somewhat like it."""
    random = np.random.default_rng(4)
    target = random.normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32) * 1.5
    return target, target + 2 * random.normal(size=target.shape).astype(np.float32)


def reference() -> Reference:
    target, _ = tables()
    return Reference("the table", lambda texts: [target[text[-1]] for text in texts])


class ToyBundle:
    """Draws by the rules."""

    def __init__(self, rules: Rules, *, exact: bool = True, batch_size: int = 3000) -> None:
        self.rules = rules
        self.manifest = SimpleNamespace(
            batch_size=batch_size, eos_token_ids=(), depth=DEPTH, exact=exact, sample=not rules.certain,
            tree="chain" if rules.siblings == 1 else "static", plan={"drafter": {"kind": "model"}},
        )  # fmt: skip

    def generate_batch(self, prompts, *, max_new_tokens, seed, adaptive, **options):
        self.random, sampling = np.random.default_rng(seed[0]), SamplingParams(**options)
        target, drafter = ([shaped(row, [0], sampling) for row in table] for table in tables())
        self.p = np.array(target)
        self.q = np.array(drafter)
        plain = [np.array([shaped(row, [0], SamplingParams(1.0)) for row in table]) for table in tables()]
        self.bonus = self.p if self.rules.filters_bonus else plain[0]
        self.q = self.q if self.rules.filters_drafts else plain[1]
        tokens = self._draw(self.p[[prompt[-1] for prompt in prompts]])[:, None]
        lengths = np.ones((len(prompts), 1), int)
        while lengths.sum(1).min() < max_new_tokens:
            more, n_more = self._round(tokens[np.arange(len(tokens)), lengths.sum(1) - 1])
            tokens = np.concatenate([tokens, np.zeros_like(more)], 1)
            for row, length in enumerate(lengths.sum(1)):
                tokens[row, length : length + n_more[row]] = more[row, : n_more[row]]
            lengths = np.concatenate([lengths, n_more[:, None]], 1)
        return [
            SimpleNamespace(token_ids=row, path_lengths=counts[1:], finish_reason="length")
            for row, counts in zip(tokens[:, :max_new_tokens].tolist(), lengths.tolist(), strict=True)
        ]

    def _draw(self, weights: np.ndarray) -> np.ndarray:
        """Return one token a row of weights [B, V]."""
        total = weights.cumsum(1)
        return (total <= self.random.random(len(weights))[:, None] * total[:, -1:]).sum(1)

    def _round(self, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens [B, DEPTH + 1] after `last` [B], and how many of them are meant [B]."""
        rows, found = np.arange(len(last)), np.zeros((len(last), DEPTH + 1), int)
        counts, is_open = np.zeros(len(last), int), np.ones(len(last), bool)
        for depth in range(DEPTH):
            accepted, child, left = self._children(rows, last)
            token = np.where(accepted, child, self._draw(left))
            found[is_open, depth] = token[is_open]
            counts += is_open
            is_open, last = is_open & accepted, token
        found[:, DEPTH] = self._draw(self.bonus[last])
        return found, counts + is_open

    def _children(self, rows: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return whether a draft after `last` was accepted, which one, and the distribution that is left otherwise."""
        rules, p, q = self.rules, self.p[last], self.q[last]
        drafting, done, chosen = q.copy(), np.zeros(len(last), bool), last
        for _ in range(rules.siblings):
            x = drafting.argmax(1) if rules.certain else self._draw(drafting)
            if rules.certain and not rules.certain_as_drawn:
                q = np.zeros_like(q)
                q[rows, x] = 1
            accepted = (self.random.random(len(last)) * q[rows, x] < p[rows, x]) | rules.accepts_all
            chosen, done = np.where(done, chosen, x), done | accepted
            if rules.residual:
                rest = np.maximum(p - q, 0)
                p = np.where(rest.sum(1, keepdims=True) > 1e-12, rest, p)
                p = p / p.sum(1, keepdims=True)
            drafting[rows, x] = 0
            drafting += 1e-30  # where all of it is gone
            drafting /= drafting.sum(1, keepdims=True)
            if rules.removes_siblings:
                q = drafting
        return done, chosen, p
