"""Bits and groups of each layer of a GPTQ checkpoint, from its headers: `dynamic` in its config may give some layers
others than the rest."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from speccompile.compiler.checkpoints.quantization import BITS, Quantization
from speccompile.compiler.checkpoints.weights import StoredTensor
from speccompile.errors import UnsupportedModelError

_NUMBERS = ".qweight"
_NAMED = 3
"""Layers that a description names."""
_STEPS = 15
"""Steps between the least and the largest of 4-bit integers."""


def with_layer_widths(quantized: Quantization, tensors: Mapping[str, StoredTensor], folder: Path) -> Quantization:
    """Return the quantization with a description of layers that have other bits or groups than the config says; it then
    keeps no 4-bit groups, as not all layers have them. Raise UnsupportedModelError for layers in other bits than 4 and
    8."""
    if quantized.method != "gptq":
        return quantized
    layers = defaultdict[tuple[int, int], list[str]](list)
    for name, bits, group in _layers(tensors):
        if bits not in BITS:
            raise UnsupportedModelError(
                f"{folder / tensors[name + _NUMBERS].file}: received the layer '{name}' in {bits} bits, expected "
                f"{' or '.join(map(str, BITS))} bits",
                hint="use the checkpoint that this one was quantized from; the recipe's precision quantizes it again",
            )
        layers[bits, group].append(name)
    usual = (quantized.bits, quantized.group_size)
    others = {width: names for width, names in layers.items() if width[0] != usual[0] or usual[1] not in (width[1], -1)}
    if not others:
        return quantized
    count = sum(map(len, layers.values()))
    told = [f"{len(names)} of {count} layers in {_shown(width)} ({_names(names)})" for width, names in others.items()]
    loss = f"; int4 rounds 8 bits again, by up to 1/{2 * _STEPS} of a block's range"
    text = f"{quantized.text}, but {' and '.join(told)}{loss if any(bits == 8 for bits, _ in others) else ''}"
    groups = {group for bits, group in layers if bits == BITS[0]}
    keeps = all(bits == BITS[0] for bits, _ in layers)
    return replace(
        quantized, text=text, group_size=min(groups) if groups else None, in_order=quantized.in_order and keeps
    )


def _layers(tensors: Mapping[str, StoredTensor]) -> Iterator[tuple[str, int, int]]:
    """Yield name, bits and group size of each layer whose tensors have the shapes of GPTQ's."""
    for key, numbers in tensors.items():
        name = key.removesuffix(_NUMBERS)
        zeros, scales = tensors.get(f"{name}.qzeros"), tensors.get(f"{name}.scales")
        if name == key or zeros is None or scales is None or {len(numbers.shape), len(zeros.shape)} != {2}:
            continue
        columns, groups = numbers.shape[1], scales.shape[0]
        bits = 32 * zeros.shape[1] // max(columns, 1)
        if bits and groups:
            yield name, bits, 32 * numbers.shape[0] // bits // groups


def _shown(width: tuple[int, int]) -> str:
    return f"{width[0]} bits, groups of {width[1]}"


def _names(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", .." if len(names) > _NAMED else "")
