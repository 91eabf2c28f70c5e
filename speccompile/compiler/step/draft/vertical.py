"""A drafter for which a lookup in the text drafts (CS Drafting, Chen et al. 2024)."""

import math

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.cascade import TEXT, extended
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.tree import chain


class VerticalCascade(Drafter):
    """A language model that drafts a chain in a constant number of passes, each over its own next token and the
    lookup's continuation of it. The continuation stays up to its first difference from the model's own tokens.

    So J passes make J + 1 drafts plus the accepted looked-up tokens, instead of J + 1: more drafts in the same time, or
    the same number in less. Their number differs from round to round. The drafts are the model's best tokens, or, with
    `lenience` below one, looked-up ones with at least `lenience` times the probability of its best (Leviathan et al.
    2023, A.5); the target verifies them strictly in either case.
    """

    def __init__(
        self,
        reader: DecoderReader,
        tokens: int,
        lookup: Lookup,
        passes: int,
        text: tuple[int, int],
        lenience: float = 1.0,
    ) -> None:
        """tokens: maximum number of drafts in a round; lookup: over a chain; text: shape of the state with the text."""
        super().__init__()
        self.reader, self.tokens, self.shape = reader, tokens, chain(tokens)
        self.lookup, self.passes, self.lenience = lookup, passes, lenience
        self.text = State(TEXT, torch.int64, text)
        self.catch_up = 2  # the last draft, which was not read, and the bonus token

    def states(self) -> list[State]:
        return [*self.reader.states(), self.text]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        *caches, text = states
        text = ops.commit(text, accepted.path, accepted.length, 1)
        reading = self.reader.begin(accepted, caches)
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: position of the bonus token
        longer, last = text, end  # the text with all drafts, and the position of the last draft
        following = self._best(reading.logits)  # [B, 1]: the model's token there
        kept = torch.ones_like(end, dtype=torch.bool)[:, :0]  # [B, R]: which of the tokens read are drafts
        one = torch.ones_like(end)
        for _ in range(self.passes):
            longer, last = extended(longer, last, following, one), last + 1
            looked = self.lookup(longer, last)
            tokens = torch.cat([following, looked.tokens], 1)
            places = torch.arange(tokens.shape[1], device=end.device)
            causal = (places <= places[:, None]).expand(end.shape[0], -1, -1)
            before = kept[:, None, :].expand(-1, tokens.shape[1], -1)
            logits = reading.read_on(tokens, last - end + places, torch.cat([before, causal], 2))
            best = self._best(logits)  # [B, 1 + w]
            right = self._agrees(logits[:, :-1], best[:, :-1], looked.tokens) & (looked.match_length > 0)[:, None]
            n_right = ((~right).long().cumsum(1) == 0).long().sum(1, keepdim=True)
            kept = torch.cat([kept, places <= n_right], 1)
            longer, last = extended(longer, last, looked.tokens, n_right), last + n_right
            following = best.gather(1, n_right)
        longer, last = extended(longer, last, following, one), last + 1

        ahead = torch.arange(1, self.tokens + 1, device=end.device)
        window = torch.cat([reading.bonus, longer.gather(1, end + ahead)], 1)
        n_drafts = (last - end)[:, 0].clamp(max=self.tokens)
        n_total = torch.where(accepted.n_path > 0, 1 + n_drafts, 1)
        return Drafted(window, n_total, [*reading.commit_kept(kept), text])

    def _best(self, logits: Tensor) -> Tensor:
        """Return int64 [B, T]: the tokens of the target with the highest logits float32 [B, T, V]."""
        best, vocabulary = logits.argmax(2), self.reader.vocabulary
        return best if vocabulary is None else vocabulary.of_target(best)

    def _agrees(self, logits: Tensor, best: Tensor, guesses: Tensor) -> Tensor:
        """Return bool [B, w]: the looked-up tokens that the model accepts. logits float32 [B, w, V], best: its best
        tokens."""
        if self.lenience == 1:
            return guesses == best
        # A token of the target that the model does not have has no logits.
        vocabulary, most = self.reader.vocabulary, logits.shape[2] - 1
        own = guesses if vocabulary is None else vocabulary.of_drafts(guesses)
        known = own.clamp(max=most)
        said = logits.gather(2, known[:, :, None])[:, :, 0]
        is_near = said >= logits.amax(2) + math.log(self.lenience)
        return is_near & (known == own)
