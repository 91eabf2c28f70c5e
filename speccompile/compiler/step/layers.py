"""Decoder layers of a transformers model, their sublayers (attention, MLP) and its final norm; skip some of them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError
from speccompile.progress import progress_counter


def find_layers(model: nn.Module) -> nn.ModuleList:
    """Return the list of decoder layers: of the length in the config; item i holds an attention module of layer i.

    Raise UnsupportedModelError, naming the architecture, if there is no such list.
    """
    return _holder(model)[1]


@contextmanager
def counting_layers(model: nn.Module, title: str, runs: int) -> Iterator[None]:
    """Show a progress counter of the layers that a model runs through in `runs` runs."""
    try:
        watched, unit = list(find_layers(model)), "layers"
    except UnsupportedModelError:
        watched, unit = [model], "texts"
    with ExitStack() as stack:
        advance = stack.enter_context(progress_counter(title, runs * len(watched), unit))
        for each in watched:
            stack.enter_context(each.register_forward_hook(lambda *_: advance(1)))
        yield


def find_norm(model: nn.Module) -> nn.Module:
    """Return the norm after the last layer: the only norm next to the list of layers that is as wide as the residual
    stream; the norm of a per-layer embedding is not. Raise UnsupportedModelError if there is not exactly one."""
    holder, _ = _holder(model)
    width = model.config.hidden_size
    norms = [
        child
        for child in holder.children()
        if "norm" in type(child).__name__.lower()
        and all(weight.shape[-1] == width for weight in child.parameters(recurse=False))
    ]
    if len(norms) != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(norms)} norms beside its layers, expected one, which comes after them",
            hint="use a drafter that does not read the final norm",
        )
    return norms[0]


def _holder(model: nn.Module) -> tuple[nn.Module, nn.ModuleList]:
    """Return the module that holds the list of layers as a child, and the list."""
    wanted = model.config.num_hidden_layers
    for holder in _decoder_part(model).modules():
        for child in holder.children():
            if isinstance(child, nn.ModuleList) and len(child) == wanted and _are_layers(child):
                return holder, child
    raise UnsupportedModelError(
        f"{type(model).__name__} has no list of its {wanted} layers, so that none can be skipped or tapped",
        hint="use a drafter that does not read the target's layers",
    )


def attending(model: nn.Module) -> set[int]:
    """Return the layers that hold an attention module. A module that several layers share has no layer number
    (Zamba)."""
    found = {getattr(module, "layer_idx", None) for module in _decoder_part(model).modules() if _is_attention(module)}
    return {layer for layer in found if isinstance(layer, int) and layer >= 0}


def has_encoder(model: nn.Module) -> bool:
    """Return whether a model has an encoder beside the decoder whose layers are found."""
    return _decoder_part(model) is not model


def _decoder_part(model: nn.Module) -> nn.Module:
    """Return the model without an encoder that has layers of its own."""
    return getattr(model, "decoder_part", model)


def _is_attention(module: nn.Module) -> bool:
    """Return whether a module is attention, by its class name: experts may have a `layer_idx` too."""
    return hasattr(module, "layer_idx") and "attention" in type(module).__name__.lower()


def _are_layers(modules: nn.ModuleList) -> bool:
    """Return whether each module has parts with its own place as layer number, or recurrent ones without any number
    beside modules that have it (RecurrentGemma)."""
    found = [{getattr(part, "layer_idx", None) for part in module.modules()} - {None} for module in modules]
    return any(found) and all(index in numbers or not numbers for index, numbers in enumerate(found))


def check_layers(model: nn.Module, layers: Iterable[int]) -> None:
    """Raise UnsupportedModelError, naming the layer, if one of these layers does not exist."""
    n_layers = model.config.num_hidden_layers
    for layer in layers:
        if not 0 <= layer < n_layers:
            raise UnsupportedModelError(
                f"received layer {layer} of {type(model).__name__}, expected one of its layers 0 to {n_layers - 1}",
                hint="name layers that the target has; they are counted from 0",
            )


@contextmanager
def skipping(model: nn.Module, attentions: Iterable[int], mlps: Iterable[int] | None = None) -> Iterator[None]:
    """Skip sublayers inside a `with` block: they add nothing to the residual stream. mlps: layers whose MLP is skipped,
    by default those of `attentions`. A layer without both returns its input, and the result of its modules is unused.

    Raise UnsupportedModelError if a layer has no separate sublayers and only one of them is to be skipped.
    """
    layers, without = find_layers(model), set(attentions)
    silent = without if mlps is None else set(mlps)
    with ExitStack() as hooks:
        for layer in sorted(without & silent):
            hooks.enter_context(layers[layer].register_forward_hook(identity_output, with_kwargs=True))
        for layer in sorted(without ^ silent):
            for half in halves(model, layer)[layer in silent]:
                hooks.enter_context(half.register_forward_hook(zero_output))
        yield


def halves(model: nn.Module, index: int) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules of a layer's attention sublayer and of its MLP sublayer: the child that attends, and all other
    children with matrices, which are one block of experts or of an MLP, or its linear layers.

    Raise UnsupportedModelError, naming the architecture, if they are not separate.
    """
    parts = list(find_layers(model)[index].children())
    attention = [part for part in parts if any(map(_is_attention, part.modules()))]
    mlp = [part for part in parts if part not in attention and any(weight.dim() > 1 for weight in part.parameters())]
    if len(attention) != 1 or not mlp:
        raise cannot_skip_sublayer(model, index, "it does not hold one part that attends and an MLP beside it")
    if any(isinstance(module, nn.Conv1d) for part in mlp for module in part.modules()):
        raise cannot_skip_sublayer(model, index, "it holds a part that carries a state beside the one that attends")
    return attention, mlp


def cannot_skip_sublayer(model: nn.Module, layer: int, reason: str) -> UnsupportedModelError:
    """Return the error for a layer whose attention or MLP cannot be skipped alone."""
    return UnsupportedModelError(
        f"layer {layer} of {type(model).__name__} has no halves of which one can be skipped alone: {reason}",
        hint="name whole layers, for example `layers: [0, 2]`",
    )


def hidden_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the input of a layer: the residual stream [B, T, H]."""
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def hidden_output(output: Any) -> Tensor:
    """Return the output of a layer: the residual stream [B, T, H], alone or the first item of a tuple."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def identity_output(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    hidden = hidden_input(args, kwargs)
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


def zero_output(half: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """Return zeros that are constants in a graph, where they fold away with the norm and the sum after them."""
    hidden = hidden_output(output)
    zeros = torch.zeros((*(1 for _ in hidden.shape[:-1]), hidden.shape[-1]), dtype=hidden.dtype)
    return (zeros, *output[1:]) if isinstance(output, tuple) else zeros
