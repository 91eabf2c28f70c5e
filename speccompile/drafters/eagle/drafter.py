"""EAGLE's head (Li et al. 2024): layers over the target's last hidden state and the embedding of the next token."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.layers import Layer, Turn
from speccompile.compiler.step.draft.paired import Output, PairedReader
from speccompile.drafters.context import DrafterContext, paired
from speccompile.drafters.weights import TargetEmbeddings, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree."""
    return paired(context, load_reader(context))


def load_reader(context: DrafterContext) -> "EagleReader":
    """Return the head's network with its weights."""
    return load_head(EagleReader(context.head, context.shape, context.ends()), context.head)


class EagleReader(PairedReader):
    """g = layers(fc([embedding of the next token ; f])), where f is a feature or the previous g; logits = head(g)."""

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings) -> None:
        layers = head.layers
        assert layers is not None, "EAGLE has layers"
        super().__init__(layers, shape)
        self.taps, self.size = head.taps, head.vocabulary_size
        self.embed_tokens, self.head = ends.embed, ends.head
        self.fc = nn.Linear(2 * layers.hidden_size, layers.hidden_size, bias="fc.bias" in head.tensors)
        self.layers = nn.ModuleList(Layer(layers, index, has_input_norm=index > 0) for index in range(layers.count))

    def fuse(self, features: Tensor) -> Tensor:
        return features

    def run(self, x: Tensor, embedded: Tensor, current: CachedPass, turn: Turn) -> Output:
        x = self.fc(torch.cat([embedded, x], -1))
        for layer in self.layers:
            x = layer(x, current, turn)
        return Output(x, x)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)
