"""Where a transformers decoder has its layers, their halves and its final norm, and how to run it without some."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError
from speccompile.progress import progress_counter


def find_layers(model: nn.Module) -> nn.ModuleList:
    """The list of decoder layers: as long as the config says, and item i holds an attention module of layer i.

    Raises UnsupportedModelError, naming the architecture, where there is no such list.
    """
    return _holder(model)[1]


@contextmanager
def counting_layers(model: nn.Module, title: str, runs: int) -> Iterator[None]:
    """Tell how many of its layers a model has gone through, in so many runs."""
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
    """The norm behind the last layer: the one norm beside the list of layers that is as wide as what goes through them,
    which one of an embedding for every layer is not. Raises UnsupportedModelError."""
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
    """The module whose child the list of layers is, and the list."""
    wanted = model.config.num_hidden_layers
    for holder in model.modules():
        for child in holder.children():
            if (
                isinstance(child, nn.ModuleList)
                and len(child) == wanted
                and all(map(_attends_as, child, range(wanted)))
            ):
                return holder, child
    raise UnsupportedModelError(
        f"{type(model).__name__} has no list of {wanted} layers that attend, so that none can be skipped or tapped",
        hint="use a drafter that does not read the target's layers",
    )


def attending(model: nn.Module) -> set[int]:
    """The layers that hold a module of attention. One that several layers share has no number (Zamba)."""
    found = {getattr(module, "layer_idx", None) for module in model.modules() if _is_attention(module)}
    return {layer for layer in found if isinstance(layer, int) and layer >= 0}


def _is_attention(module: nn.Module) -> bool:
    """By transformers' names: experts too may know the number of their layer."""
    return hasattr(module, "layer_idx") and "attention" in type(module).__name__.lower()


def _attends_as(layer: nn.Module, index: int) -> bool:
    return any(getattr(module, "layer_idx", None) == index for module in layer.modules())


def check_layers(model: nn.Module, layers: Iterable[int]) -> None:
    """Raises UnsupportedModelError where one of these layers does not exist, naming it."""
    n_layers = model.config.num_hidden_layers
    for layer in layers:
        if not 0 <= layer < n_layers:
            raise UnsupportedModelError(
                f"received layer {layer} of {type(model).__name__}, expected one of its layers 0 to {n_layers - 1}",
                hint="name layers that the target has; they are counted from 0",
            )


@contextmanager
def skipping(model: nn.Module, attentions: Iterable[int], mlps: Iterable[int] | None = None) -> Iterator[None]:
    """Inside, these halves of the model's layers add nothing to the residual stream; mlps: by default those of the same
    layers. A layer without either hands its input on as its output. What the others compute, nobody reads.

    Raises UnsupportedModelError where a layer of which one half is skipped has no halves.
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
    """What computes the attention half of a layer, and its MLP half: the part that attends, and all others with
    matrices, which are the one block of experts or of an MLP, or its linear layers.

    Raises UnsupportedModelError, naming the architecture, where they are not apart.
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
    """That one half of this layer cannot be skipped alone."""
    return UnsupportedModelError(
        f"layer {layer} of {type(model).__name__} has no halves of which one can be skipped alone: {reason}",
        hint="name whole layers, for example `layers: [0, 2]`",
    )


def hidden_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a layer is given: the residual stream [B, T, H]."""
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def hidden_output(output: Any) -> Tensor:
    """What a layer gives: the residual stream [B, T, H], alone or first of several things."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def identity_output(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    hidden = hidden_input(args, kwargs)
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden


def zero_output(half: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """Zeros that are constants in a graph, where they fold away with the norm and the sum behind them."""
    hidden = hidden_output(output)
    zeros = torch.zeros((*(1 for _ in hidden.shape[:-1]), hidden.shape[-1]), dtype=hidden.dtype)
    return (zeros, *output[1:]) if isinstance(output, tuple) else zeros
