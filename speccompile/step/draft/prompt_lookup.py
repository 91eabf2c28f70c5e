"""Prompt lookup (Saxena 2023; LLMA, Yang et al. 2023): copy what followed the last tokens where they stood before."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from speccompile.step import ops
from speccompile.step.draft import Drafted, Drafter, State


class PromptLookup(Drafter):
    """Finds the longest match, of at most `ngram` tokens, of the text's end in the text; the latest where several are.

    Its only state is the text. Where a match overlaps the end, the copy goes round: the period is repeated.
    """

    def __init__(self, tokens: int, ngram: int, batch_size: int, rows: int) -> None:
        super().__init__()
        self.tokens, self.ngram, self.batch_size, self.rows = tokens, ngram, batch_size, rows

    def states(self) -> list[State]:
        return [State("tokens", torch.int64, (self.batch_size, self.rows))]

    def forward(self, path: Tensor, n_path: Tensor, length: Tensor, catch_up: Tensor, states: list[Tensor]) -> Drafted:
        text = ops.commit(states[0], path, length, 1)  # [B, S]
        end = (length + n_path)[:, None]  # [B, 1]: where the bonus token stands
        places = torch.arange(self.rows, device=path.device)

        matched = torch.ones_like(text, dtype=torch.bool)
        score = torch.zeros_like(text)  # tokens matched, ending at this place
        for back in range(self.ngram):
            wanted = text.gather(1, (end - back).clamp(min=0))
            # A place before the text's beginning holds -1, which is no token; neither does the text have one there.
            matched = matched & (pad(text[:, : self.rows - back], (back, 0), value=-1) == wanted) & (end >= back)
            score = score + matched.long()
        ranked = torch.where((places < end) & (score > 0), score * self.rows + places, -1)
        best, place = ranked.max(1, keepdim=True)  # [B, 1]

        ahead = torch.arange(self.tokens, device=path.device)
        period = (end - place).clamp(min=1)
        source = (place + 1 + ahead % period).clamp(max=self.rows - 1)
        drafts = text.gather(1, source)
        n_total = torch.where(best[:, 0] >= 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([text.gather(1, end), drafts], 1), n_total, [text])
