"""Where a transformers decoder has its layers and its final norm, and how to run it without some of its layers."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from speccompile.errors import UnsupportedModelError
from speccompile.progress import counted


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
        advance = stack.enter_context(counted(title, runs * len(watched), unit))
        for each in watched:
            stack.enter_context(each.register_forward_hook(lambda *_: advance(1)))
        yield


def find_norm(model: nn.Module) -> nn.Module:
    """The norm behind the last layer: the one norm beside the list of layers. Raises UnsupportedModelError."""
    holder, _ = _holder(model)
    norms = [child for child in holder.children() if "norm" in type(child).__name__.lower()]
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
def skipping(model: nn.Module, skipped: Iterable[int]) -> Iterator[None]:
    """Inside, these layers of the model hand their input on as their output. What they compute, nobody reads."""
    layers = find_layers(model)
    with ExitStack() as hooks:
        for layer in skipped:
            hooks.enter_context(layers[layer].register_forward_hook(_hand_on, with_kwargs=True))
        yield


def hidden_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What a layer is given: the residual stream [B, T, H]."""
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def hidden_output(output: Any) -> Tensor:
    """What a layer gives: the residual stream [B, T, H], alone or first of several things."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def _hand_on(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    hidden = hidden_input(args, kwargs)
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
