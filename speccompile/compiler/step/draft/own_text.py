"""The text as a drafter reads it: in the target's tokens, or in those of its own tokenizer."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, State
from speccompile.compiler.step.draft.vocabulary import ListedTokens, Vocabulary
from speccompile.contract import ENDS


class OwnTokens(nn.Module):
    """Tables between the target's tokens and those of a drafter with another tokenizer (TLI, Timor et al. 2025).

    drafter_ids int64 [n]: the common tokens, by which the drafter's logits are gathered; `vocabulary` says which of the
    target's these are. to_drafter int64 [V * E], counts int64 [V]: the drafter's tokens for each token of the target.
    """

    def __init__(self, target_ids: Tensor, drafter_ids: Tensor, to_drafter: Tensor, counts: Tensor) -> None:
        """target_ids int64 [n]; to_drafter int64 [V, E]; see `speccompile.drafters.token_map.TokenMap`."""
        super().__init__()
        self.expansion, self.size = to_drafter.shape[1], len(target_ids)
        self.vocabulary: Vocabulary = ListedTokens(target_ids, len(counts))
        last = to_drafter.gather(1, counts[:, None] - 1)[:, 0]
        for name, table in (
            ("drafter_ids", drafter_ids), ("to_drafter", to_drafter.flatten()), ("counts", counts), ("last", last),
        ):  # fmt: skip
            self.register_buffer(name, table.long(), persistent=False)

    def state(self, batch_size: int, rows: int, prefix: str) -> State:
        """Return the state that says where tokens of the target end: int64 [B, S], the number of the drafter's tokens
        up to each. prefix: of the names of the drafter's states."""
        return State(f"{prefix}.{ENDS.partition('.')[2]}", torch.int64, (batch_size, rows))


class TargetText:
    """The path's last tokens, as the target has them: tokens int64 [B, C]; last int64 [B], the index of the bonus token
    among them; begin int64 [B], the number of tokens before them; end int64 [B], of those before the bonus token; steps
    int64 [C] = 0, 1, ..
    """

    def __init__(self, accepted: Accepted) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        self.steps, self.end = catch_up, length + n_path
        start = (n_path - (catch_up.shape[0] - 1)).clamp(min=0)  # [B]: first token of the catch-up in the path
        self.last = n_path - start
        self.tokens = path.gather(1, (start[:, None] + catch_up).clamp(max=path.shape[1] - 1))
        self.begin = length + start

    def commit(self, drafts: int) -> list[Tensor]:
        """Return the states of the text, with those tokens and a number of drafts after the bonus token."""
        return []


class OwnText(TargetText):
    """The path's last tokens in the drafter's own, without gaps: tokens int64 [B, C * E], and the fields of
    `TargetText` as numbers of these. Every draft is one token of both."""

    def __init__(self, accepted: Accepted, own: OwnTokens, ends: Tensor) -> None:
        """ends int64 [B, S]: the state of `OwnTokens.state`."""
        super().__init__(accepted)
        self.ends, self.place, self.last_of_target = ends, self.begin, self.last
        width = self.steps.shape[0]
        counts = torch.where(self.steps <= self.last[:, None], own.counts[self.tokens], 0)
        self.sums = counts.cumsum(1)  # [B, C]
        before = ends.gather(1, (self.place - 1).clamp(min=0)[:, None])[:, 0]
        # Bounded, because a saved session may say anything.
        before = torch.where(self.place > 0, before.clamp(min=0).minimum(self.place * own.expansion), 0)
        # An idle slot may lag behind the target, whose ends it then does not know: it writes behind all that it holds.
        self.begin = torch.where(accepted.n_path > 0, before, self.place * own.expansion)
        self.steps = torch.arange(width * own.expansion, device=counts.device)
        found = (self.sums[:, None, :] <= self.steps[:, None]).long().sum(2).clamp(max=width - 1)  # [B, C * E]
        inside = (self.steps - (self.sums - counts).gather(1, found)).clamp(0, own.expansion - 1)
        self.tokens = own.to_drafter[self.tokens.gather(1, found) * own.expansion + inside]
        self.last = self.sums[:, -1] - 1
        self.end = self.begin + self.last

    def commit(self, drafts: int) -> list[Tensor]:
        places = torch.arange(self.sums.shape[1] + drafts, device=self.sums.device)
        behind = places - self.last_of_target[:, None]
        inside = places.clamp(max=self.sums.shape[1] - 1).expand(self.sums.shape[0], -1)
        sums = torch.where(behind <= 0, self.sums.gather(1, inside), self.sums[:, -1:] + behind)
        return [ops.commit(self.ends, self.begin[:, None] + sums, self.place, 1)]
