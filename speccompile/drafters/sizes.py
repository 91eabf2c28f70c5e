"""Shape of a new drafter: numbers and words under `train.shape`, whose defaults come from the target's config.

`recipe.drafter_shape` decides them. No torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]
Decided = Callable[[Config, Mapping[str, int | str]], int]
"""Function of the target's config and of the sizes decided before."""


@dataclass(frozen=True)
class Size:
    """A size under `train.shape`. default: a value, or a function that returns it. min, max: bounds of a number, which
    is a multiple of `step`; reason: shown for a number above `max`. words: allowed words, if it is a word; numbers:
    whether a number is allowed as well. divides: another size, decided before, of which it must be a divisor."""

    default: int | str | Decided
    min: int = 1
    max: int | Decided | None = None
    reason: str = "give less"
    words: tuple[str, ...] = ()
    numbers: bool = False
    divides: str | None = None
    step: int = 1


def config_value(config: Config, *names: str, default: int | None = None) -> int:
    """Return a size of the target: the first of the given config keys with an integer, or the default."""
    value = next((config[name] for name in names if isinstance(config.get(name), int)), default)
    assert value is not None, f"the planner has read {names[0]}"
    return value


HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "num_heads")
INNER = ("intermediate_size", "n_inner", "ffn_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")
"""Config keys of the sizes in different architectures."""


UNUSED = "unused"
"""Value of a mask token that stands for a token in no text, chosen after the texts are counted."""


def last_token(config: Config, found: Mapping[str, int | str]) -> int:
    return config_value(config, "vocab_size") - 1


MASK_TOKEN = Size(UNUSED, min=0, max=last_token, reason="give a token of the target", words=(UNUSED,), numbers=True)
"""Size of drafters that read a mask token at the positions of tokens to be drafted."""


def hidden_size(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the hidden size H of the target."""
    return config_value(config, *HIDDEN)


def intermediate_size(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the target's intermediate size, scaled by the ratio of the drafter's hidden size to the target's."""
    width = config_value(config, *HIDDEN)
    return max(1, config_value(config, *INNER, default=4 * width) * int(found.get("hidden_size", width)) // width)


def heads(config: Config, found: Mapping[str, int | str]) -> int:
    return config_value(config, *HEADS, default=max(1, config_value(config, *HIDDEN) // 64))


def kv_heads(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the target's number of KV heads, or the next smaller divisor of the drafter's number of heads."""
    wanted = min(config_value(config, "num_key_value_heads", default=int(found["heads"])), int(found["heads"]))
    return next(each for each in range(max(1, wanted), 0, -1) if int(found["heads"]) % each == 0)


def head_dim(config: Config, found: Mapping[str, int | str]) -> int:
    """Return the target's head_dim if heads and hidden size are the target's; else hidden size / heads, made even."""
    width, count = config_value(config, *HIDDEN), int(found["heads"])
    even = max(2, int(found.get("hidden_size", width)) // count // 2 * 2)
    same = count == heads(config, found) and found.get("hidden_size", width) == width
    return config_value(config, "head_dim", default=even) if same else even


def layer_sizes(layers: int, *, narrow: bool = False) -> dict[str, Size]:
    """Return the sizes of Llama-like decoder layers. narrow: the hidden size may be smaller than the target's."""
    wider = "a head that is wider than its target costs more than it can save"
    width = {"hidden_size": Size(hidden_size, max=hidden_size, reason=wider, step=2)} if narrow else {}
    return {
        "layers": Size(layers),
        **width,
        "intermediate_size": Size(intermediate_size),
        "heads": Size(heads),
        "kv_heads": Size(kv_heads, divides="heads"),
        "head_dim": Size(head_dim, min=2, step=2),
    }
