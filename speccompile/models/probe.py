"""Find out how a model attends, and prove in eager torch that the hook sees all of it.

An architecture that does its attention elsewhere would export without an error and be wrong. So before any export the
model runs twice over the same tokens: as transformers runs it, and through the hook in two windows over a committed
cache. Every layer must have passed through the hook once a window, and the logits must be the same.
"""

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError
from speccompile.models.load import first_line
from speccompile.step import ops
from speccompile.step.attention import HOOK, LayerAttention, MaskTag, Pass, running
from speccompile.step.decoder import CacheShape, Decoder

TOLERANCE = 2e-4
"""Largest difference of logits, hook against eager, relative to the largest logit. float32."""

PROBE_TOKENS = 24
LONGEST_PROBE = 512


class _Recorder(Pass):
    """A pass that attends within itself and writes down what every layer asked for."""

    def __init__(self, n_layers: int, length: Tensor) -> None:
        super().__init__([length] * (2 * n_layers), length, [0] * n_layers)
        self.tags: dict[int, MaskTag] = {}

    def attend(self, layer: int, query: Tensor, tag: object, scale: float, softcap: float) -> Tensor:
        if layer in self.tags:
            raise UnsupportedModelError(f"layer {layer} attends more than once a token")
        if not isinstance(tag, MaskTag):
            raise UnsupportedModelError(f"layer {layer} attends without a mask from transformers' mask interface")
        self.tags[layer] = tag
        return query.new_zeros((*query.shape[:3], self.layers[layer].values.shape[3]))


@torch.no_grad()
def probe(model: nn.Module, shape: CacheShape) -> Decoder:
    """The model behind the hook, proven equal to transformers' eager on random tokens.

    Raises UnsupportedModelError, naming the architecture, when a layer bypasses the hook, attends in a way that the
    hook cannot express, or the logits differ.
    """
    name = type(model).__name__
    try:
        layers = _layers(model, shape.max_length)
        decoder = Decoder(model, layers, shape)
        _compare(model, decoder)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{name} cannot be compiled: {error}", hint=error.hint) from error
    except (AttributeError, AssertionError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError,
            ValueError) as error:  # fmt: skip
        # Model code that expects something else of its cache or masks: whatever it raises, the answer is the same.
        raise UnsupportedModelError(
            f"{name} cannot be compiled: it does not run behind the attention hook ({first_line(error)})"
        ) from error
    return decoder


def _layers(model: nn.Module, max_length: int) -> list[LayerAttention]:
    """Run three tokens through the hook and read off each layer's shapes and attention window."""
    n_layers = model.config.num_hidden_layers
    zero = torch.zeros(1, dtype=torch.int64)
    recorder = _Recorder(n_layers, zero)
    positions = torch.arange(3)[None]
    recorder.look(positions, positions, torch.ones(1, 3, 3, dtype=torch.bool).tril())
    model.set_attn_implementation(HOOK)
    with running(recorder):
        model(input_ids=torch.zeros_like(positions), position_ids=positions, past_key_values=recorder, use_cache=True)
    missed = [index for index in range(n_layers) if index not in recorder.tags]
    if missed:
        raise UnsupportedModelError(
            f"{len(missed)} of its {n_layers} layers do not go through transformers' attention interface, "
            f"the first is layer {missed[0]}"
        )
    return [
        LayerAttention(
            (rows.keys.shape[1], rows.keys.shape[3]),
            (rows.values.shape[1], rows.values.shape[3]),
            attention_window(recorder.tags[index], max_length),
        )
        for index, rows in enumerate(recorder.layers)
    ]


def attention_window(tag: MaskTag, max_length: int) -> int:
    """The number of latest positions that a mask lets a query see, 0 when all; raises when it is any other mask."""
    keys = torch.arange(max_length)

    def seen(query: int) -> Tensor:
        index = torch.tensor(0)
        return torch.as_tensor(tag.visible(index, index, torch.tensor(query), keys)).expand(max_length)

    window = int(seen(max_length - 1).sum())
    window = 0 if window == max_length else window
    for query in {0, 1, 2, window - 1, window, window + 1, max_length // 2, max_length - 1}:
        if 0 <= query < max_length:
            expected = (keys <= query) & ((window == 0) | (query - keys < window))
            if not torch.equal(seen(query).bool(), expected):
                raise UnsupportedModelError(
                    f"its mask is neither causal nor a causal sliding window (seen from position {query})"
                )
    return window


def _compare(model: nn.Module, decoder: Decoder) -> None:
    """Eager logits against the hook's, the latter in two windows over a cache that holds the first."""
    windows = [layer.window for layer in decoder.layers if layer.window]
    wanted = min(min(windows, default=0) + PROBE_TOKENS, LONGEST_PROBE)
    n_tokens = min(max(wanted, PROBE_TOKENS), decoder.shape.max_length)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.config.vocab_size, (1, n_tokens), generator=generator)

    model.set_attn_implementation("eager")
    expected = model(input_ids=tokens, use_cache=False).logits.float()
    model.set_attn_implementation(HOOK)
    caches = [torch.zeros(1, *s[1:2], n_tokens, s[3]) for s in decoder.cache_shapes()]
    got, length = [], torch.zeros(1, dtype=torch.int64)
    for part in tokens.split([n_tokens // 2 + 1, n_tokens - n_tokens // 2 - 1], dim=1):
        width = part.shape[1]
        positions = length[:, None] + torch.arange(width)
        current = decoder.begin(caches, length)
        current.look(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
        got.append(decoder.run(current, part))
        caches = [ops.commit(c, r, length, 2) for c, r in zip(caches, current.rows(), strict=True)]
        length = length + width
    difference = (torch.cat(got, 1) - expected).abs().max().item()
    if not difference <= TOLERANCE * expected.abs().max().item():
        raise UnsupportedModelError(
            f"through the attention hook its logits differ from transformers' eager by {difference:.2g} "
            f"(the largest logit is {expected.abs().max().item():.2g})",
            hint="some of its attention happens outside transformers' attention interface",
        )
