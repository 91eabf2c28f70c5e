"""PARD-2: a causal pass of the draft model over tokens, each with the target's features of the token before it, and
over a mask token for every draft but the first."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafter
from speccompile.compiler.step.draft.layers import Layer, Turn, make_norm
from speccompile.compiler.step.draft.masked import MaskedPairedRound
from speccompile.compiler.step.draft.paired import Output, PairedReader
from speccompile.compiler.step.draft.pictures import PicturedPath
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.pard2.reading import SCALE
from speccompile.drafters.weights import load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain, or of the best nodes of one pass."""
    return token_by_token(context, load_reader(context, context.drafter.tree.depth - 1))


def load_reader(context: DrafterContext, masks: int) -> "Pard2Reader":
    """Return the draft model with its weights."""
    return load_head(Pard2Reader(context.head, context.shape, masks), context.head)


class Pard2Reader(PairedReader):
    """The draft model with `masks` mask rows after the text: head(norm(layers(embedding + fuse(features))))."""

    def __init__(self, head: HeadPlan, shape: CacheShape, masks: int) -> None:
        layers = head.layers
        assert layers is not None, "PARD-2 has layers"
        super().__init__(layers, shape)
        self.taps, self.size, self.masks = head.taps, head.vocabulary_size, masks
        self.mask_token, self.scale = int(head.switches[SWITCH] or 0), float(head.switches[SCALE] or 0)
        width, bias = layers.hidden_size, "target_proj.bias" in head.tensors
        self.target_proj = nn.Linear(len(head.taps) * head.hidden_size, width, bias=bias)
        self.embed_tokens = nn.Embedding(head.vocabulary_size, width)
        self.layers = nn.ModuleList(Layer(layers, index) for index in range(layers.count))
        self.norm = make_norm(layers)
        self.lm_head: nn.Linear | None = None
        if "lm_head.weight" in head.tensors:
            self.lm_head = nn.Linear(width, head.vocabulary_size, bias=False)

    def fuse(self, features: Tensor) -> Tensor:
        return self.target_proj(features) * self.scale

    def run(self, x: Tensor, embedded: Tensor, current: CachedPass, turn: Turn) -> Output:
        x = embedded + x
        for layer in self.layers:
            x = layer(x, current, turn)
        hidden = self.norm(x)
        return Output(hidden, hidden)  # nothing is fed back: all drafts come from one pass

    def logits(self, hidden: Tensor) -> Tensor:
        if self.lm_head is None:
            return nn.functional.linear(hidden, self.embed_tokens.weight)
        return self.lm_head(hidden)

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "Pard2Reading":
        return Pard2Reading(self, accepted, states)


class Pard2Reading(MaskedPairedRound):
    """A round of PARD-2. Row p holds token p and the features of token p - 1, or zeros for the first token of the text:
    the caches have a row more than those of other drafters with pairs, and that of the bonus token is the last."""

    reader: Pard2Reader

    def __init__(self, reader: Pard2Reader, accepted: Accepted, states: list[Tensor]) -> None:
        path, n_path, length, catch_up = accepted.path, accepted.n_path, accepted.length, accepted.catch_up
        assert catch_up is not None, "a drafter with caches catches up"
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader, self.end = reader, length + n_path + 1
        self.bonus = path.gather(1, n_path[:, None])
        first = (length > 0).long()  # [B]: place in the path of the first token without a row
        places = first[:, None] + catch_up  # [B, C]
        tokens = path.gather(1, places.clamp(max=path.shape[1] - 1))
        before = (places - 1).clamp(min=0, max=accepted.features.shape[1] - 1)[:, :, None]
        features = accepted.features.gather(1, before.expand(-1, -1, accepted.features.shape[2]))
        features = torch.where((places > 0)[:, :, None], features, 0.0)

        begin, rows = length + first, n_path + 1 - first
        self.current = CachedPass(states, begin, list(reader.shape_of_layers.windows))
        self.row_positions = reader.clamp(begin[:, None] + catch_up)
        self.seen = catch_up < rows[:, None]
        self.last = (rows - 1).clamp(min=0)[:, None]
        causal = (catch_up[None, :] <= catch_up[:, None]).expand(path.shape[0], -1, -1)
        self.pictures = PicturedPath(None, accepted)
        self._read_path(reader.fuse(features), reader.embed(tokens), causal)

    def masks(self) -> tuple[int, int]:
        return self.reader.masks, self.reader.mask_token

    def mask_rows(self, x: Tensor) -> Tensor:
        """See `MaskedPairedRound.mask_rows`: the features in the bonus token's row."""
        return x.gather(1, self.last[:, :, None].expand(-1, -1, x.shape[2]))
