"""Quantization of stored weights by config.json: the method, and whether it is supported.

Only weights count: a checkpoint made for quantized activations or caches counts as one of quantized weights, and
activations and caches stay floats here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.json_files import read_json_object, wrong

KEYS = ("quantization_config", "compression_config")
"""Keys in config.json; older versions of compressed-tensors wrote the second one."""

BITS = (4, 8)
"""Supported bits of integers."""

CHANNEL = -1
"""Group size that stands for all weights of an output."""

_HINT = "use the checkpoint that this one was quantized from; the recipe's precision quantizes it again"


@dataclass(frozen=True)
class Quantization:
    """Storage of a checkpoint's weights. method: the config's, one of METHODS.

    bits: of an integer, None for floats. group_size: weights of an output that share a scale, or CHANNEL. block:
    outputs and inputs of a weight that share a scale. stored_less_one: zero points are one more than the stored
    numbers. text: description for messages.
    """

    method: str
    text: str
    bits: int | None = None
    group_size: int | None = None
    block: tuple[int, int] | None = None
    stored_less_one: bool = False
    in_order: bool = True
    """True if weights that share a scale are consecutive."""

    @property
    def groups_of_4_bits(self) -> int | None:
        """Return the size of groups that a 4-bit precision may pass through; None for other methods."""
        return self.group_size if self.bits == 4 and self.in_order else None


def read_quantization(folder: Path) -> Quantization | None:
    """Return the quantization in a checkpoint's config.json; None if the weights are floats. Raise as
    `quantization_of`."""
    return quantization_of(read_json_object(folder / CONFIG) or {}, folder / CONFIG)


def quantization_of(config: Mapping[str, Any], path: Path) -> Quantization | None:
    """Return the quantization in a config, which `path` names in messages; None if the weights are floats.

    Raise UnsupportedModelError, naming it, for an unsupported method; CheckpointError for values that no library
    writes.
    """
    written = next((config[key] for key in KEYS if config.get(key)), None)
    if written is None:
        return None
    if not isinstance(written, dict):
        raise wrong(path, f"{KEYS[0]}: {written!r}", "a JSON object")
    method = written.get("quant_method", "by no named method")
    if method not in METHODS:
        raise _unsupported(path, f"'{method}'", one_of(METHODS))
    return METHODS[method].read(written, path)


def _gptq(written: Mapping[str, Any], path: Path) -> Quantization:
    bits, group_size = _integers(written, path, "bits"), _integers(written, path, "group_size")
    layout = written.get("checkpoint_format", written.get("format", "gptq"))
    if layout not in ("gptq", "gptq_v2"):
        raise _unsupported(path, f"'gptq' in the format '{layout}'", "its formats 'gptq' and 'gptq_v2'")
    _check_bits(bits, path, "gptq")
    order = ", in the order of activations" if written.get("desc_act") else ""
    text = f"gptq, {bits} bits, {_groups(group_size)}{order}"
    return Quantization("gptq", text, bits, group_size, stored_less_one=layout == "gptq", in_order=not order)


def _awq(written: Mapping[str, Any], path: Path) -> Quantization:
    bits, group_size = _integers(written, path, "bits"), _integers(written, path, "group_size")
    version = str(written.get("version", written.get("format", "gemm"))).lower()
    if version != "gemm":
        raise _unsupported(path, f"'awq' in the version '{version}'", "its version 'gemm'")
    if bits != BITS[0]:
        raise _unsupported(path, f"'awq' in {bits} bits", f"{BITS[0]} bits")
    return Quantization("awq", f"awq, {bits} bits, {_groups(group_size)}", bits, group_size)


def _compressed_tensors(written: Mapping[str, Any], path: Path) -> Quantization:
    """Read the config documented in compressed_tensors.quantization.QuantizationConfig."""
    name, groups = "compressed-tensors", written.get("config_groups")
    if not isinstance(groups, dict) or not groups or not all(isinstance(group, dict) for group in groups.values()):
        raise wrong(path, f"config_groups: {groups!r}", "what each group of layers is quantized to")
    if (written.get("sparsity_config") or {}).get("format", "dense") != "dense":
        raise _unsupported(path, f"'{name}' with sparsity_config", "weights that are not sparse")
    if written.get("transform_config"):
        raise _unsupported(path, f"'{name}' with transform_config", "weights that are not rotated")
    found = [_group(group, written, path) for group in groups.values()]
    first = found[0]
    if len(found) == 1:
        return first
    text = f"{name}, {', '.join(dict.fromkeys(each.text.partition(', ')[2] for each in found))}"
    same = all(each.bits == first.bits and each.group_size == first.group_size for each in found)
    return first if same else Quantization(name, text)


_CT_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def _group(group: Mapping[str, Any], written: Mapping[str, Any], path: Path) -> Quantization:
    name, weights = "compressed-tensors", group.get("weights")
    layout = group.get("format") or written.get("format")
    if layout not in _CT_FORMATS:
        raise _unsupported(path, f"'{name}' in the format '{layout}'", one_of(_CT_FORMATS))
    if not isinstance(weights, dict):
        raise _unsupported(path, f"'{name}' of activations alone", "quantized weights")
    bits, kind = _integers(weights, path, "num_bits"), weights.get("type", "int")
    if kind == "float":
        if bits != 8:
            raise _unsupported(path, f"'{name}' in floats of {bits} bits", "floats of 8 bits")
        block = weights.get("block_structure")
        size = tuple(block) if isinstance(block, list) and len(block) == 2 else None
        return Quantization(name, f"{name}, fp8{_blocks(size)}", block=size)
    _check_bits(bits, path, name)
    group_size = weights.get("group_size") or CHANNEL
    return Quantization(name, f"{name}, {bits} bits, {_groups(group_size)}", bits, group_size)


def _fp8(written: Mapping[str, Any], path: Path) -> Quantization:
    """Read transformers' FineGrainedFP8Config."""
    block = written.get("weight_block_size")
    if written.get("expert_dtype", "fp8") != "fp8":
        raise _unsupported(path, f"'fp8' with experts in {written['expert_dtype']}", "experts in fp8")
    match block:
        case None:
            return Quantization("fp8", "fp8")
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return Quantization("fp8", f"fp8{_blocks((rows, columns))}", block=(rows, columns))
    raise wrong(path, f"weight_block_size: {block!r}", "two whole numbers above zero, or null")


def _mxfp4(written: Mapping[str, Any], path: Path) -> Quantization:
    return Quantization("mxfp4", "mxfp4, groups of 32")


class Method(NamedTuple):
    """Parser of the rest of a config, and a description of the supported values for messages."""

    read: Callable[[Mapping[str, Any], Path], Quantization]
    taken: str


METHODS = {
    "gptq": Method(_gptq, "4 and 8 bits, formats gptq and gptq_v2, any groups, in the order of activations too"),
    "awq": Method(_awq, "4 bits, version gemm, any groups"),
    "compressed-tensors": Method(_compressed_tensors, f"4 and 8 bits and fp8, in {', '.join(_CT_FORMATS)}"),
    "fp8": Method(_fp8, "a scale for a block, an output or a whole weight"),
    "mxfp4": Method(_mxfp4, "experts as in GPT-OSS"),
}
"""Methods by `quant_method`."""


def one_of(words: Mapping[str, Any] | tuple[str, ...]) -> str:
    return f"one of {', '.join(words)}"


def _groups(size: int) -> str:
    return "a scale an output" if size == CHANNEL else f"groups of {size}"


def _blocks(size: tuple[int, int] | None) -> str:
    return "" if size is None else f", blocks of {size[0]} x {size[1]}"


def _integers(written: Mapping[str, Any], path: Path, key: str) -> int:
    value = written.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and (value > 0 or value == CHANNEL):
        return value
    raise wrong(path, f"{KEYS[0]}.{key}: {value!r}", "a whole number above zero")


def _check_bits(bits: int, path: Path, method: str) -> None:
    if bits not in BITS:
        raise _unsupported(path, f"'{method}' in {bits} bits", f"{' or '.join(map(str, BITS))} bits")


def _unsupported(path: Path, received: str, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: its weights are quantized by {received}, expected {expected}", hint=_HINT)


def missing_tensors_error(folder: Path, quantization: Quantization, received: str, expected: str) -> CheckpointError:
    """Return the error for tensors that do not match the config."""
    return CheckpointError(
        f"{folder}: {quantization.method} weights: received {received}, expected {expected}",
        hint="check that config.json belongs to these weights and that every file is there",
    )
