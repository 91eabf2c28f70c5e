"""Sizes of a new draft model: a Llama, smaller than the target."""

from collections.abc import Mapping

from speccompile.drafters.sizes import INNER, LAYERS, Config, Size, config_value, head_dim, heads, hidden_size

_NARROWER, _FEWER = 2, 3
"""Divisors of the target's width and depth: the ratios of the demo's target and drafter."""


def _layers(config: Config, found: Mapping[str, int | str]) -> int:
    return max(1, -(-config_value(config, *LAYERS) // _FEWER))


def _width(config: Config, found: Mapping[str, int | str]) -> int:
    return max(2, hidden_size(config, found) // _NARROWER // 2 * 2)


def _heads(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the target's number of heads, scaled by the ratio of the hidden sizes."""
    return max(1, heads(config, found) * int(found["hidden_size"]) // hidden_size(config, found))


def _kv_heads(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the number of KV heads for the target's group size, or the next smaller divisor of the heads."""
    shared = max(1, heads(config, found) // config_value(config, "num_key_value_heads", default=heads(config, found)))
    return next(each for each in range(max(1, int(found["heads"]) // shared), 0, -1) if int(found["heads"]) % each == 0)


def _intermediate(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the target's intermediate size, scaled by the ratio of the hidden sizes."""
    width = hidden_size(config, found)
    return max(1, config_value(config, *INNER, default=4 * width) * int(found["hidden_size"]) // width)


SIZES = {
    "layers": Size(_layers),
    "hidden_size": Size(
        _width, min=2, max=hidden_size, reason="a drafter that is wider than its target costs more than it can save"
    ),
    "intermediate_size": Size(_intermediate),
    "heads": Size(_heads),
    "kv_heads": Size(_kv_heads, divides="heads"),
    "head_dim": Size(head_dim, min=2, step=2),
}
"""See `Training.sizes`."""


def decoder_layers(config: Config) -> int:
    """Return the number of layers of an encoder-decoder's decoder."""
    nested = config.get("decoder")
    names = ("decoder_layers", "num_decoder_layers", *LAYERS)
    return config_value(nested if isinstance(nested, Mapping) else config, *names)


def _kept(config: Config, found: Mapping[str, int | str]) -> int:
    return max(1, decoder_layers(config) // _FEWER)


def _most(config: Config, found: Mapping[str, int | str]) -> int:
    return decoder_layers(config)


SOURCE_SIZES = {"layers": Size(_kept, max=_most, reason="the target has no more")}
"""See `Training.source_sizes`: the target's encoder, and some layers of its decoder."""
