"""Check by a run whether attention or MLP of a layer can be skipped alone, as the probe checks attention."""

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import HOOK
from speccompile.compiler.step.layers import (
    cannot_skip_sublayer,
    find_layers,
    halves,
    hidden_input,
    hidden_output,
    zero_output,
)

TOKENS = 3


@torch.no_grad()
def check_sublayers(model: nn.Module, layers: Iterable[int]) -> None:
    """Check that each of these layers returns its input when both its sublayers add nothing: only then is a sublayer
    all that it adds.

    A norm over the sum, or a third part, would violate that. The model keeps the attention hook. Raise
    UnsupportedModelError, naming the architecture.
    """
    watched = sorted(layers)
    found: dict[int, tuple[Tensor, Tensor]] = {}
    if not watched:
        return
    with ExitStack() as hooks:
        for layer in watched:
            for half in chain(*halves(model, layer)):
                hooks.enter_context(half.register_forward_hook(zero_output))

            def keep(_: nn.Module, args: Any, kwargs: Any, output: Any, layer: int = layer) -> None:
                found[layer] = hidden_input(args, kwargs), hidden_output(output)

            hooks.enter_context(find_layers(model)[layer].register_forward_hook(keep, with_kwargs=True))
        model.set_attn_implementation("eager")
        tokens = torch.arange(TOKENS)[None] % model.config.vocab_size
        try:
            model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
        except RuntimeError as error:  # the layer reshapes a sublayer's output, as Llama 4 does
            raise cannot_skip_sublayer(
                model, watched[0], "zeros of one row do not stand for all rows of its output"
            ) from error
        finally:
            model.set_attn_implementation(HOOK)
    for layer in watched:
        before, after = found[layer]
        if not torch.equal(before, after):
            raise cannot_skip_sublayer(model, layer, "without both it does not hand its input on")
