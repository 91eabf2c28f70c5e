"""EAGLE-3's head (Li et al. 2025) and 3.1's: layers over the target's taps and the embedding of the next token."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.layers import Attention, Layer, Turn, make_mlp, make_norm
from speccompile.compiler.step.draft.paired import Output, PairedReader
from speccompile.drafters.context import DrafterContext, paired
from speccompile.drafters.weights import TargetEmbeddings, draft_vocabulary, load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree."""
    return paired(context, load_reader(context))


def load_reader(context: DrafterContext) -> "Eagle3Reader":
    """Return the head's network with its weights."""
    return load_head(Eagle3Reader(context.head, context.shape, context.ends()), context.head)


class FirstLayer(nn.Module):
    """First layer: attention over [norm(embedding) ; norm(x)] of width 2h. norm_before_residual: the residual is
    norm(x) instead of x."""

    def __init__(self, head: HeadPlan) -> None:
        super().__init__()
        layers, switches = head.layers, head.switches
        assert layers is not None
        self.self_attn = Attention(layers, 0, 2 * layers.hidden_size)
        self.mlp = make_mlp(layers)
        self.input_layernorm = make_norm(layers) if switches["use_input_layernorm_in_first_layer"] else nn.Identity()
        self.hidden_norm, self.post_attention_layernorm = make_norm(layers), make_norm(layers)
        self.norm_before_residual = bool(switches["norm_before_residual"])

    def forward(self, x: Tensor, embedding: Tensor, current: CachedPass, turn: Turn) -> Tensor:
        normed = self.hidden_norm(x)
        read = torch.cat([self.input_layernorm(embedding), normed], -1)
        x = (normed if self.norm_before_residual else x) + self.self_attn(read, current, turn)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle3Reader(PairedReader):
    """u = fc(taps); g = layers(u or the fed-back output, embedding of the next token); logits = head(norm(g)).

    The fed-back output is g, or norm(g) if `norm_output` (3.1).
    """

    def __init__(self, head: HeadPlan, shape: CacheShape, ends: TargetEmbeddings) -> None:
        layers, switches = head.layers, head.switches
        assert layers is not None, "EAGLE-3 has layers"
        super().__init__(layers, shape)
        self.taps, self.vocabulary, self.size = head.taps, draft_vocabulary(head), head.draft_vocabulary_size
        width, read = layers.hidden_size, len(head.taps) * head.hidden_size
        self.norm_output = bool(switches["norm_output"])
        self.fc = nn.Linear(read, width, bias="fc.bias" in head.tensors) if "fc.weight" in head.tensors else None
        self.input_norm = make_norm(layers, read) if switches["norm_before_fc"] else nn.Identity()
        self.fc_norm = nn.ModuleList(
            [make_norm(layers, head.hidden_size) for _ in head.taps] if switches["fc_norm"] else []
        )
        self.layers = nn.ModuleList([FirstLayer(head), *(Layer(layers, index) for index in range(1, layers.count))])
        self.norm = make_norm(layers) if switches["use_last_layernorm"] else nn.Identity()
        has_head = "lm_head.weight" in head.tensors
        self.lm_head = nn.Linear(width, self.size, bias=False) if has_head else ends.head
        if "embed_tokens.weight" in head.tensors:
            self.embed_tokens = nn.Embedding(head.vocabulary_size, width)
        else:
            self.embed_tokens = ends.embed

    def fuse(self, features: Tensor) -> Tensor:
        if self.fc_norm:
            parts = features.chunk(len(self.fc_norm), -1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        features = self.input_norm(features)
        return features if self.fc is None else self.fc(features)

    def run(self, x: Tensor, embedded: Tensor, current: CachedPass, turn: Turn) -> Output:
        first, *others = self.layers
        x = first(x, embedded, current, turn)
        for layer in others:
            x = layer(x, current, turn)
        hidden = self.norm(x)
        return Output(hidden, hidden if self.norm_output else x)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.lm_head(hidden)
