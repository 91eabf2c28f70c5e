"""Lookups combined with any drafter: a tail after its chain, or drafts that replace its own; and windows that the host
may fill.

Horizontal cascade (CS Drafting, Chen et al. 2024): the drafter's first drafts are worth most, so the tokens after them
come from a lookup, which costs nothing. Gate (SAM decoding, Hu et al. 2024): a long match is drafted, otherwise the
model's drafts are. Both are of static shape: the model runs either way, in the same graph.
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import pad

from speccompile.compiler.step import ops
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.tree import Tree, chain

TEXT = "tokens"
"""Name of the state with the text: all committed tokens and the bonus token."""


def extended(text: Tensor, end: Tensor, tokens: Tensor, count: Tensor) -> Tensor:
    """Return the text int64 [B, S], whose last token stands at `end` int64 [B, 1], extended by the first `count` int64
    [B, 1] of tokens int64 [B, T]."""
    behind = torch.arange(text.shape[1], device=text.device) - end - 1
    is_new = (behind >= 0) & (behind < count)
    return torch.where(is_new, tokens.gather(1, behind.clamp(0, tokens.shape[1] - 1)), text)


def certain_rows(tokens: Tensor, candidates: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return ids int64 and probs float32 [B, T, C] that give tokens int64 [B, T] probability one; the other candidates
    are any different ones, of probability zero."""
    places = torch.arange(candidates, device=tokens.device)
    ids = (tokens[:, :, None] + places) % vocabulary
    return ids, (places == 0).float().expand(ids.shape)


class DrafterWrapper(Drafter):
    """A drafter in a window to which other drafters or the host write as well.

    In its catch-up the drafter reads all tokens that may be accepted, not only its own drafts.
    """

    shape: Tree

    def __init__(self, drafter: Drafter, tree: Tree) -> None:
        """tree: of all drafts together."""
        super().__init__()
        self.drafter, self.shape, self.tokens = drafter, tree, tree.drafts
        assert not drafter.n_unaccepted_rows, "the plan refuses drafters with rows behind their drafts"
        self.taps, self.pairs_next_token, self.target_top_k = (
            drafter.taps,
            drafter.pairs_next_token,
            drafter.target_top_k,
        )
        self.candidates, self.is_recurrent = drafter.candidates, drafter.is_recurrent
        self.reads_whole_batch = drafter.reads_whole_batch

    def states(self) -> list[State]:
        return self.drafter.states()

    def target_caches(self) -> list[State]:
        return self.drafter.target_caches()


class HostFillableDrafter(DrafterWrapper):
    """A chain, in a window that the host may fill instead: with other tokens, and more of them."""

    def __init__(self, drafter: Drafter, tokens: int) -> None:
        """tokens: drafts of the window, N."""
        super().__init__(drafter, chain(tokens))
        assert not drafter.candidates, "the plan refuses it for drafts that are drawn"
        self.catch_up = tokens + 1 + self.is_recurrent if drafter.catch_up else 0

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        drafted = self.drafter(accepted, states)
        return drafted._replace(window=_padded(drafted.window, self.tokens + 1))


class LookupWrapper(DrafterWrapper):
    """A drafter and a lookup in the text. If the drafter has the text among its states, they share that state."""

    def __init__(self, drafter: Drafter, tree: Tree, text: tuple[int, int], vocabulary: int) -> None:
        """tree: of all drafts together; text: shape of its state; vocabulary: number of the target's tokens."""
        super().__init__(drafter, tree)
        self.vocabulary = vocabulary
        names = [state.name for state in drafter.states()]
        self.place = names.index(TEXT) if TEXT in names else None
        self.text = State(TEXT, torch.int64, text)

    def states(self) -> list[State]:
        return [*super().states(), *([self.text] if self.place is None else [])]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        own = len(self.drafter.states())
        borrowed = states[len(self.states()) :]
        given = accepted
        if accepted.uniforms is not None:
            given = accepted._replace(uniforms=accepted.uniforms[:, : self.drafter.tokens])
        drafted = self.drafter(given, [*states[:own], *borrowed])
        if self.place is None:
            text = ops.commit(states[own], accepted.path, accepted.length, 1)  # [B, S]
            drafted = drafted._replace(states=[*drafted.states, text])
        else:
            text = drafted.states[self.place]
        end = (accepted.length + accepted.n_path)[:, None]  # [B, 1]: position of the bonus token
        return self.look(drafted, text, end, accepted.n_path > 0)

    @abstractmethod
    def look(self, drafted: Drafted, text: Tensor, end: Tensor, is_fed: Tensor) -> Drafted:
        """Return the combined drafts. text int64 [B, S] ends at `end` int64 [B, 1]; is_fed bool [B]: batch slots that
        are not idle."""


class LookupTail(LookupWrapper):
    """A chain, followed by the lookup's continuation of the text and that chain.

    The tail follows the actual drafts: if the drafter stops early, it begins earlier. Without a match there is no tail.
    """

    def __init__(self, drafter: Drafter, lookup: Lookup, text: tuple[int, int], vocabulary: int) -> None:
        """lookup: over a chain."""
        added = lookup.tree.drafts
        super().__init__(drafter, chain(drafter.tokens + added), text, vocabulary)
        self.lookup = lookup
        self.catch_up = drafter.catch_up + added if drafter.catch_up else 0

    def look(self, drafted: Drafted, text: Tensor, end: Tensor, is_fed: Tensor) -> Drafted:
        own = drafted.window[:, 1:]
        count = drafted.n_total[:, None] - 1
        looked = self.lookup(extended(text, end, own, count), end + count)
        n_tail = torch.where((looked.match_length > 0) & is_fed, looked.tokens.shape[1], 0)
        window = torch.cat([drafted.window[:, :1], _spliced(own, looked.tokens, count)], 1)
        drafted = drafted._replace(window=window, n_total=drafted.n_total + n_tail)
        if drafted.ids is None or drafted.probs is None:
            return drafted
        ids, probs = certain_rows(looked.tokens, self.candidates, self.vocabulary)
        return drafted._replace(ids=_spliced(drafted.ids, ids, count), probs=_spliced(drafted.probs, probs, count))


def _spliced(first: Tensor, behind: Tensor, count: Tensor) -> Tensor:
    """Splice [B, d, ..] and [B, t, ..] -> [B, d + t, ..]: the first `count` int64 [B, 1] rows, then the rows of
    `behind`."""
    own, both = first.shape[1], torch.cat([first, behind], 1)
    places = torch.arange(both.shape[1], device=first.device)
    index = torch.where(places < count, places, places - count + own).clamp(max=both.shape[1] - 1)
    return both.gather(1, index) if both.dim() == 2 else both.gather(1, index[..., None].expand(both.shape))


class LookupGate(LookupWrapper):
    """The lookup's drafts if its match is long, else the drafter's own.

    The lookup may copy more tokens than the drafter drafts, if both are chains, or fill the drafter's constant tree.
    """

    def __init__(self, drafter: Drafter, lookup: Lookup, match: int, text: tuple[int, int], vocabulary: int) -> None:
        """match: minimum number of the text's last tokens in the match."""
        assert drafter.shape is not None, "the plan refuses trees that the drafter makes"
        is_chain = drafter.shape.is_chain
        assert is_chain or lookup.tree is drafter.shape, "a tree is filled whole"
        tree = chain(max(drafter.tokens, lookup.tree.drafts)) if is_chain else drafter.shape
        super().__init__(drafter, tree, text, vocabulary)
        self.lookup, self.match = lookup, match
        self.catch_up = tree.depth + 1 + self.is_recurrent if drafter.catch_up else 0

    def look(self, drafted: Drafted, text: Tensor, end: Tensor, is_fed: Tensor) -> Drafted:
        looked = self.lookup(text, end)
        passes = (looked.match_length >= self.match) & is_fed
        own, copied = (_padded(each, self.tokens) for each in (drafted.window[:, 1:], looked.tokens))
        window = torch.cat([drafted.window[:, :1], torch.where(passes[:, None], copied, own)], 1)
        n_total = torch.where(passes, 1 + looked.tokens.shape[1], drafted.n_total)
        drafted = drafted._replace(window=window, n_total=n_total)
        if drafted.ids is None or drafted.probs is None:
            return drafted
        ids, probs = certain_rows(copied, self.candidates, self.vocabulary)
        through = passes[:, None, None]
        return drafted._replace(
            ids=torch.where(through, ids, _padded(drafted.ids, self.tokens)),
            probs=torch.where(through, probs, _padded(drafted.probs, self.tokens)),
        )


def _padded(rows: Tensor, size: int) -> Tensor:
    """Pad [B, n, ..] -> [B, size, ..] with zeros at the end."""
    missing = size - rows.shape[1]
    return pad(rows, (0, missing) if rows.dim() == 2 else (0, 0, 0, missing)) if missing else rows
