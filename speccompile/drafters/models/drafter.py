"""Several drafters whose trees are merged under one root (SpecInfer, Miao et al. 2023)."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.own_text import OwnTokens
from speccompile.drafters.context import DrafterContext
from speccompile.tree import Tree, merged, merged_indices


def make(context: DrafterContext) -> Drafter:
    """Return the drafter in which every model drafts the tree."""
    decoders = context.drafters()
    own = [context.own_tokens(number) for number in range(len(decoders))]
    return SeveralDrafters(decoders, context.tree, context.vocabulary_size, own)


class SeveralDrafters(Drafter):
    """Language models that each draft a tree of the same shape: if one is wrong, another may be right.

    Siblings may hold the same token. The caches of the first model are named `drafter.key.0`, .., those of the next
    `drafter.1.key.0`, ..
    """

    def __init__(
        self,
        decoders: list[Decoder],
        tree: Tree,
        target_size: int | None = None,
        own: list[OwnTokens | None] | None = None,
    ) -> None:
        """target_size: see `DecoderReader`; models may have more or fewer tokens. own: `OwnTokens` of each model."""
        super().__init__()
        prefixes = ["drafter", *(f"drafter.{number}" for number in range(1, len(decoders)))]
        pairs = zip(decoders, prefixes, own or [None] * len(decoders), strict=True)
        readers = [DecoderReader(decoder, name, target_size, tokens) for decoder, name, tokens in pairs]
        self.drafters = nn.ModuleList(FixedDrafter(reader, tree, merged=True) for reader in readers)
        trees = [tree] * len(decoders)
        self.shape = merged(trees)
        self.tokens = self.shape.drafts
        self.catch_up = max(drafter.catch_up for drafter in self.drafters)
        places = [place for its in merged_indices(trees) for place in its]
        self.order = sorted(range(self.tokens), key=places.__getitem__)

    def states(self) -> list[State]:
        return [state for drafter in self.drafters for state in drafter.states()]

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        drafts, kept, start = [], [], 0
        for drafter in self.drafters:
            end = start + len(drafter.states())
            drafted = drafter(accepted, states[start:end])
            drafts.append(drafted.window[:, 1:])
            kept += drafted.states
            start = end
        in_order = torch.cat(drafts, 1).index_select(1, torch.tensor(self.order))
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        return Drafted(torch.cat([drafted.window[:, :1], in_order], 1), n_total, kept)
