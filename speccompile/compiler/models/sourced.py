"""An encoder-decoder of transformers as a model of the round: a decoder whose source has been encoded before."""

from collections.abc import Sequence
from copy import deepcopy
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from speccompile.bundle.sources import is_cross_state
from speccompile.compiler.step.attention import CachedPass
from speccompile.compiler.step.cross_attention import SourcedCache, SourceRows
from speccompile.compiler.step.positions import counting_positions
from speccompile.compiler.step.relative_bias import prepare_distances
from speccompile.errors import UnsupportedModelError

_POSITIONS = "decoder_position_ids"

EAGER = "eager"
"""transformers' own attention, by which encoders run."""


class SourcedModel(nn.Module):
    """The decoder and head of an encoder-decoder over a source that `read` has given to its encoder.

    In a pass its cross-attention reads the rows of the pass; otherwise it runs as transformers runs it, over the source
    that was read last.
    """

    encoded: Tensor | None = None
    hidden: tuple[int, ...] = ()
    """Tokens that no answer has."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole, self.config = whole, _decoder_config(whole)

    @property
    def decoder_part(self) -> nn.Module:
        """Return the module with the layers of the decoder alone."""
        found: nn.Module = self.whole.get_decoder()
        return found

    def get_output_embeddings(self) -> nn.Module | None:
        found: nn.Module | None = self.whole.get_output_embeddings()
        return found

    def get_input_embeddings(self) -> nn.Module:
        found: nn.Module = self.decoder_part.get_input_embeddings()
        return found

    def set_attn_implementation(self, name: str) -> None:
        self.whole.set_attn_implementation(name)

    @torch.no_grad()
    def read(self, source: Any) -> None:
        """Encode a source, token ids, for runs outside of a pass."""
        self.set_attn_implementation(EAGER)
        self.encoded = self.encode(torch.tensor([list(source)], device=next(self.parameters()).device))

    def encode(self, source: Tensor) -> Tensor:
        """Return the encoder's states [B, n, H] for a source int64 [B, n], all of whose tokens count."""
        with counting_positions(self.whole):
            found: Tensor = self.whole.get_encoder()(input_ids=source, attention_mask=torch.ones_like(source))[0]
        return found

    @torch.no_grad()
    def answer(self, source: Any, begin: Sequence[int], room: int, ends: Sequence[int]) -> list[int]:
        """Return up to `room` new tokens, the most probable ones that the rules allow, after those with which an answer
        begins. An end-of-sequence token is the last."""
        self.read(source)
        cache, new = EncoderDecoderCache(DynamicCache(), DynamicCache()), list[int]()
        given, places = torch.tensor([list(begin)], device=next(self.parameters()).device), range(len(begin))
        while len(new) < room and not (new and new[-1] in ends):
            with counting_positions(self.whole, torch.tensor([list(places)], device=given.device)):
                found = self.whole(
                    decoder_input_ids=given, encoder_outputs=BaseModelOutput(self.encoded), cache=cache, use_cache=True
                )
            new.append(int(self.allowed(found.logits[0, -1], len(new)).argmax()))
            given, places = given.new_tensor([new[-1:]]), range(places.stop, places.stop + 1)
        return new

    def allowed(self, logits: Tensor, place: int) -> Tensor:
        """Return logits [V] of an answer's new token number `place` under the rules of the checkpoint."""
        return self.suppress(logits[None])[0]

    def suppress(self, logits: Tensor) -> Tensor:
        """Return logits [n, V] of an answer's new tokens, from the first on, without tokens that no answer has."""
        return logits.index_fill(-1, torch.tensor(self.hidden, dtype=torch.int64), -torch.inf)

    def cross_rows(self, encoded: Tensor) -> list[SourceRows]:
        """Return keys and values of every layer's cross-attention over the encoder's states, as the decoder makes them
        for its own cache at its first token."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        start = torch.zeros(encoded.shape[0], 1, dtype=torch.int64, device=encoded.device)
        with counting_positions(self.whole):
            self.whole(decoder_input_ids=start, encoder_outputs=BaseModelOutput(encoded), cache=cache, use_cache=True)
        return [SourceRows(layer.keys, layer.values) for layer in cache.cross_attention_cache.layers]

    def forward(self, input_ids: Tensor, cache: Any = None, **more: Any) -> Any:
        """Return transformers' output for tokens int64 [B, T]. position_ids: read by models that take any; for others
        see `positions`."""
        positions = more.pop("position_ids", None)
        if _POSITIONS in signature(self.whole.forward).parameters and positions is not None:
            more[_POSITIONS] = positions
        if isinstance(cache, CachedPass):
            states = torch.zeros(1, 1, self.config.hidden_size)  # read by nothing: the rows of the source are there
            return self.whole(
                decoder_input_ids=input_ids, encoder_outputs=BaseModelOutput(states), cache=SourcedCache(cache), **more
            )
        assert self.encoded is not None, "a source is read before a text"
        encoded = self.encoded.expand(input_ids.shape[0], -1, -1)  # one source of several texts
        given = {"decoder_input_ids": input_ids, "encoder_outputs": BaseModelOutput(encoded), "cache": cache}
        if cache is None:  # else T5Gemma hides the padding token in a text, which it does not hide as it generates
            given["decoder_attention_mask"] = torch.ones_like(input_ids)
        if positions is not None:
            return self.whole(**given, **more)
        with counting_positions(self.whole, torch.arange(input_ids.shape[1])[None]):  # as with a cache: padding counts
            return self.whole(**given, **more)


def answers_over(whole: nn.Module, sources: Tensor, is_source: Tensor, tokens: Tensor) -> Any:
    """Return the output of an encoder-decoder of transformers for tokens int64 [B, T] over sources int64 [B, n], padded
    where bool [B, n] says False, or over features of sounds float32 [B, M, F], of which all count."""
    if sources.is_floating_point():
        encoded = whole.get_encoder()(input_features=sources)[0]
        return whole(decoder_input_ids=tokens, encoder_outputs=BaseModelOutput(encoded), use_cache=False)
    mask, places = is_source.long(), torch.arange(tokens.shape[1], device=tokens.device)[None]
    with counting_positions(whole):
        encoded = whole.get_encoder()(input_ids=sources, attention_mask=mask)[0]
    with counting_positions(whole, places):
        return whole(
            decoder_input_ids=tokens, decoder_attention_mask=torch.ones_like(tokens),
            encoder_outputs=BaseModelOutput(encoded), attention_mask=mask, use_cache=False,
        )  # fmt: skip


def sourced(whole: nn.Module, base: type[SourcedModel] = SourcedModel) -> SourcedModel:
    """Return an encoder-decoder as a `SourcedModel` that messages call by the name of its own class."""
    prepare_distances(whole)
    kind = type(type(whole).__name__, (base,), {})
    found: SourcedModel = kind(whole)
    return found


def has_source(model: nn.Module) -> bool:
    """Return whether a model reads a source."""
    return isinstance(model, SourcedModel)


def head_input(model: nn.Module, hidden: Tensor) -> Tensor:
    """Return what the output head reads of the last hidden state: a T5 whose head is its embedding scales it."""
    is_scaled = isinstance(model, SourcedModel) and getattr(model.whole.config, "scale_decoder_outputs", False)
    return hidden * model.whole.config.d_model**-0.5 if is_scaled else hidden


def read_source(model: nn.Module, source: Sequence[int] | None) -> None:
    """Let a model that reads a source read this one; other models have none."""
    if isinstance(model, SourcedModel):
        assert source is not None, "a text of an encoder-decoder has a source"
        model.read(source)


def fill_cross(names: Sequence[str], caches: Sequence[Tensor], rows: Sequence[SourceRows]) -> None:
    """Write the rows of a source to the front of the caches of these names that hold one, in place."""
    for name, cache in zip(names, caches, strict=True):
        if is_cross_state(name):
            kind, _, layer = name.rpartition(".")
            found = rows[int(layer)].keys if kind.endswith("key") else rows[int(layer)].values
            cache[:, :, : found.shape[2]] = found


def _decoder_config(whole: nn.Module) -> Any:
    """Return the config of the decoder, with the names of a language model."""
    config = whole.config
    own = deepcopy(getattr(config, "decoder", None) or config)
    found = {name: getattr(config, name, None) for name in ("vocab_size", "pad_token_id")}
    layers = len(_layers(whole.get_decoder()))
    found["vocab_size"] = whole.get_output_embeddings().weight.shape[0]
    return SimpleNamespace(**own.to_dict() | found | {"num_hidden_layers": layers, "hidden_size": own.hidden_size})


def _layers(decoder: nn.Module) -> nn.ModuleList:
    for child in decoder.children():
        if isinstance(child, nn.ModuleList):
            return child
    raise UnsupportedModelError(f"{type(decoder).__name__} has no list of layers")
