"""Find out how a model attends, and prove in eager torch that the hook sees all of it.

An architecture that does its attention elsewhere would export without an error and be wrong. So before any export the
model runs over the same tokens as transformers runs it and through the hook: in several windows over a committed cache,
and at the model's last positions. Every layer must have passed through the hook, and the logits must be the same.
"""

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError
from speccompile.models.load import first_line
from speccompile.progress import counted
from speccompile.step.attention import HOOK, LayerAttention, MaskTag, Pass, running
from speccompile.step.decoder import CacheShape, Decoder

TOLERANCE = 3e-5
"""Largest difference of logits, hook against eager, relative to the largest logit. float32."""

STATEFUL = ("linear_attention", "conv", "hybrid", "hybrid_sliding")
"""What transformers' configs call layers that keep a state, of a recurrence or a convolution."""

PROBE_TOKENS = 24
LONGEST_PROBE = 512

_RUNS = 8
"""Of the model: one to see its layers, five in windows, two at its last positions."""


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
        _check_head(model)
        _check_layer_types(model)
        with counted(f"probing {name}", _RUNS, "runs") as advance, model.register_forward_hook(lambda *_: advance(1)):
            decoder = Decoder(model, _layers(model, shape.max_length), shape)
            _compare_windows(model, decoder)
            _compare_last_positions(model, decoder)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{name} cannot be compiled: {error}", hint=error.hint) from error
    except (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # Model code that expects something else of its cache or masks: whatever it raises, the answer is the same.
        raise UnsupportedModelError(
            f"{name} cannot be compiled: it does not run behind the attention hook ({first_line(error)})"
        ) from error
    return decoder


def behind_hook(model: nn.Module, layers: list[LayerAttention], shape: CacheShape) -> Decoder:
    """A model of which `probe` found out these layers."""
    model.set_attn_implementation(HOOK)
    return Decoder(model, layers, shape)


def _check_head(model: nn.Module) -> None:
    if model.get_output_embeddings() is None:
        raise UnsupportedModelError(
            "it has no output embeddings; the rows whose logits are wanted are chosen before them"
        )


def _check_layer_types(model: nn.Module) -> None:
    kinds = getattr(model.config, "layer_types", None) or []
    found = [index for index, kind in enumerate(kinds) if kind in STATEFUL]
    if found:
        raise UnsupportedModelError(
            f"{len(found)} of its {len(kinds)} layers keep a state, not keys and values, the first is layer {found[0]} "
            f"of type {kinds[found[0]]}",
            hint="choose a model of attention layers alone",
        )


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


def _compare_windows(model: nn.Module, decoder: Decoder) -> None:
    """Three windows, the last of one token, each over a cache that holds those before it."""
    longest = min((layer.window for layer in decoder.layers if layer.window), default=0) + PROBE_TOKENS
    n_tokens = min(longest, LONGEST_PROBE, decoder.shape.max_length)
    tokens = _random_tokens(model, n_tokens)
    expected = _eager(model, tokens, torch.arange(n_tokens)[None])
    caches = [torch.zeros(1, *s[1:2], n_tokens, s[3]) for s in decoder.cache_shapes()]
    start = 0
    for part in tokens.tensor_split(sorted({n_tokens // 2, n_tokens - 1} - {0}), dim=1):
        end = start + part.shape[1]
        current = _begin(decoder, caches, start, torch.arange(start, end)[None])
        _check_equal(decoder.run(current, part), expected[:, start:end], "some of its attention happens elsewhere")
        if start == 0:
            _check_rows(decoder, part, expected)
        caches = current.commit(current.rows())
        start = end


def _check_rows(decoder: Decoder, tokens: Tensor, expected: Tensor) -> None:
    """Logits of chosen rows must be those rows of all logits: rows are chosen before the head."""
    index = torch.tensor([[tokens.shape[1] - 1, 0]])
    caches = [torch.zeros(1, s[1], 1, s[3]) for s in decoder.cache_shapes()]
    current = _begin(decoder, caches, 0, torch.arange(tokens.shape[1])[None])
    got = decoder.run(current, tokens, index)
    if got.shape[1] != 2:
        raise UnsupportedModelError(
            f"its logits have {got.shape[1]} rows where 2 were chosen before its output embeddings: "
            "they are computed somewhere else"
        )
    _check_equal(got, expected[:, index[0]], "its logits depend on more than the row they belong to")


def _compare_last_positions(model: nn.Module, decoder: Decoder) -> None:
    """One window at the last positions, over an empty cache that claims to hold another number of tokens.

    Finds what grows with the position, and what takes positions from anywhere else than from `position_ids`.
    """
    n_tokens = min(PROBE_TOKENS, decoder.shape.max_length)
    start = decoder.shape.max_length - n_tokens
    positions = torch.arange(start, start + n_tokens)[None]
    tokens = _random_tokens(model, n_tokens)
    expected = _eager(model, tokens, positions)
    current = _begin(decoder, [torch.zeros(1, s[1], 1, s[3]) for s in decoder.cache_shapes()], 0, positions)
    for rows in current.layers:
        rows.n_seen = start
    _check_equal(
        decoder.run(current, tokens),
        expected,
        f"from position {start} on, it uses more than the position_ids it is given",
    )


def _random_tokens(model: nn.Module, n_tokens: int) -> Tensor:
    tokens = torch.randint(model.config.vocab_size, (1, n_tokens), generator=torch.Generator().manual_seed(0))
    # transformers warns of padding without an attention mask
    return torch.where(tokens == (model.config.pad_token_id or 0), model.config.vocab_size - 1, tokens)


def _eager(model: nn.Module, tokens: Tensor, positions: Tensor) -> Tensor:
    """float32 logits [1, T, V] as transformers computes them, without a cache."""
    model.set_attn_implementation("eager")
    logits: Tensor = model(input_ids=tokens, position_ids=positions, use_cache=False).logits.float()
    model.set_attn_implementation(HOOK)
    wanted = (1, tokens.shape[1], model.config.vocab_size)
    if logits.shape != wanted:
        raise UnsupportedModelError(f"its logits have shape {list(logits.shape)}, expected {list(wanted)}")
    if not logits.isfinite().all():
        raise UnsupportedModelError(
            "transformers' own logits are not finite", hint="check the checkpoint for weights that are NaN or infinite"
        )
    return logits


def _begin(decoder: Decoder, caches: list[Tensor], length: int, positions: Tensor) -> Pass:
    """A pass over `length` committed rows that sees a causal window at `positions`."""
    width = positions.shape[1]
    current = decoder.begin(caches, torch.tensor([length]))
    current.look(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
    return current


def _check_equal(got: Tensor, expected: Tensor, hint: str) -> None:
    largest, difference = expected.abs().max().item(), (got - expected).abs().max().item()
    if not difference <= TOLERANCE * largest:
        raise UnsupportedModelError(
            f"through the attention hook its logits differ from transformers' eager by {difference:.2g} "
            f"(the largest logit is {largest:.2g})",
            hint=hint,
        )
