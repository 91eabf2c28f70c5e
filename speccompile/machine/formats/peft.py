"""A LoRA adapter in PEFT's format: its changes of a model, and the parts that cannot be merged.

A folder has adapter_config.json and adapter_model.safetensors, whose tensors are named
`base_model.model.<module>.<part>`. Which modules an adapter changes is told by its tensors; of the config only ranks
and scales are needed. Every tensor is used or refused by name, since one that is left out changes what the model says.

Formats: PEFT 0.21, `LoraConfig` and `get_peft_model_state_dict`. LoRA: Hu et al. 2021; rsLoRA: Kalajdzievski 2023;
DoRA: Liu et al. 2024.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.json_files import is_present, read_json_object
from speccompile.machine.formats.safetensors import FLOAT_DTYPES, StoredTensor, read_tensors

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MERGED = "merged_adapter.json"
"""Marks a folder whose model gets the adapter beside it: `speccompile.recipe.adapter` makes such folders."""

PREFIX = "base_model.model."
"""Beginning of the names of an adapter's tensors."""

LOW_RANK = ("lora_A.weight", "lora_B.weight")
"""Ends of the names of a linear layer's two matrices."""

(_A, _B), _BIAS = LOW_RANK, "lora_B.bias"
_EMBEDDING_A, _EMBEDDING_B = "lora_embedding_A", "lora_embedding_B"
_MAGNITUDE, _ROWS = "lora_magnitude_vector", "token_adapter.trainable_tokens_delta"
_PARTS = (_A, _B, _BIAS, _EMBEDDING_A, _EMBEDDING_B, _MAGNITUDE, _ROWS)


_UNMERGEABLE = {
    "alora_invocation_tokens": "it is active only behind a sequence of tokens",
    "arrow_config": "it chooses between adapters token by token",
    "ensure_weight_tying": "it changes the head with the embedding that is tied to it",
    "kasa_config": "it changes the base weights",
    "layer_replication": "it repeats layers of the base model",
    "megatron_config": "it belongs to a model of Megatron",
    "monteclora_config": "it draws its weights",
    "target_parameters": "it changes parameters of experts, whose tensors name no parameter",
    "use_bdlora": "its matrices are block-diagonal",
    "use_qalora": "it pools the inputs of a quantized layer",
    "velora_config": "it belongs to another kind of training",
}
"""Keys of a config -> meaning; any value other than null, false and an empty one is refused."""

CONFIG_KEYS = (
    "peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "rank_pattern", "alpha_pattern",
    "use_rslora", "use_dora", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "bias",
    "lora_bias", "modules_to_save", "trainable_token_indices", "init_lora_weights", "auto_mapping", "peft_version",
    "revision", "inference_mode", "lora_dropout", "fan_in_fan_out", "loftq_config", "eva_config", "corda_config",
    "lora_ga_config", "qalora_group_size", "megatron_core", "runtime_config",
)  # fmt: skip
"""Keys whose effect lies in the tensors, or that have none here."""

_CHANGED_BASE = ("pissa", "olora", "corda", "eva", "lora_ga", "loftq")
"""Values of `init_lora_weights` for which the base weights were changed too. Theirs are not in the adapter."""

_CONVERT = (
    "save it again with peft: load it on its base, merge_and_unload(), save_pretrained(FOLDER), and build that folder"
)


@dataclass(frozen=True)
class LowRank:
    """A product B A that is added to a weight [N, K], times `scale`. a: [r, K]; b: [N, r]. magnitude: [N], the norms of
    DoRA's rows. bias: [N], added to the layer's bias, times `scale`. is_embedding: the weight [V, H] gets A^T B^T, with
    a [r, V] and b [H, r]."""

    module: str
    a: StoredTensor
    b: StoredTensor
    scale: float
    magnitude: StoredTensor | None = None
    bias: StoredTensor | None = None
    is_embedding: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the product, that of a weight [N, K]."""
        if self.is_embedding:
            return self.a.shape[1], self.b.shape[0]
        return self.b.shape[0], self.a.shape[1]


@dataclass(frozen=True)
class Adapter:
    """Changes of a model. replaced: parameter name -> tensor, whole. rows: module -> tokens and their rows in the
    weight of that embedding. base: what its config names as base model, perhaps nothing. rank: the largest."""

    low_rank: tuple[LowRank, ...]
    replaced: dict[str, StoredTensor]
    rows: dict[str, tuple[tuple[int, ...], StoredTensor]]
    base: str | None
    rank: int

    @property
    def kind(self) -> str:
        """Return its kind in words of the literature."""
        return "DoRA" if any(each.magnitude for each in self.low_rank) else "LoRA"


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in a folder. Only headers are read.

    Raise CheckpointError for a folder without an adapter and for files that contradict each other,
    UnsupportedModelError for one that cannot be merged, with the key of its config or the tensor.
    """
    config = read_json_object(folder / ADAPTER_CONFIG)
    if config is None:
        raise CheckpointError(
            f"{folder}: received {_found(folder)}, expected an adapter of PEFT: {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}",
            hint="give the folder that model.save_pretrained of peft has written",
        )
    _check_config(config, folder / ADAPTER_CONFIG)
    if not is_present(folder / ADAPTER_WEIGHTS):
        pickled = is_present(folder / "adapter_model.bin")
        received = "adapter_model.bin (pickle files can run code and are never read)" if pickled else "no weights"
        raise CheckpointError(
            f"{folder}: received {received}, expected {ADAPTER_WEIGHTS}",
            hint="where you trust them, convert them: load the adapter with peft, then save_pretrained(FOLDER)",
        )
    return _assembled(config, read_tensors(folder / ADAPTER_WEIGHTS), folder)


def _found(folder: Path) -> str:
    if folder.is_dir():
        return f"a folder without {ADAPTER_CONFIG}"
    return "a file" if folder.exists() else "nothing"


def _check_config(config: Mapping[str, Any], path: Path) -> None:
    kind, task = config.get("peft_type"), config.get("task_type")
    if kind != "LORA":
        raise _refused(
            path, f"peft_type: {kind!r}", "LORA: no other adapter is a product that can be added to a weight"
        )
    if task not in (None, "CAUSAL_LM"):
        raise _refused(path, f"task_type: {task!r}", "CAUSAL_LM")
    for key, meaning in _UNMERGEABLE.items():
        if config.get(key):
            raise _refused(path, f"{key}: {str(config[key])[:80]}", f"none: {meaning}")
    for key in sorted(name for name, value in config.items() if value and name not in CONFIG_KEYS):
        raise _refused(
            path, f"{key}: {str(config[key])[:80]}", "a key of PEFT 0.21: it may change what the model computes"
        )
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        raise _refused(
            path,
            f"init_lora_weights: {start!r}",
            "one of the published base: this start changed its weights",
        )


def _refused(path: Path, received: str, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: received {received}, expected {expected}", hint=_CONVERT)


def _assembled(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor], folder: Path) -> Adapter:
    path, modules, replaced = folder / ADAPTER_WEIGHTS, dict[str, dict[str, StoredTensor]](), dict[str, StoredTensor]()
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOAT_DTYPES:
            raise _wrong(path, f"tensor '{name}' in {tensor.dtype}", "float32, float16 or bfloat16")
        if not name.startswith(PREFIX):
            raise _wrong(path, f"tensor '{name}'", f"names that begin with {PREFIX}")
        module, part = _split(name.removeprefix(PREFIX))
        if part:
            modules.setdefault(module, {})[part] = tensor
        elif "lora_" in module or "token_adapter" in module:
            raise UnsupportedModelError(
                f"{path}: received tensor '{name}', expected {', '.join(_PARTS)}", hint=_CONVERT
            )
        else:
            replaced[module] = tensor
    rows, low_rank = dict[str, tuple[tuple[int, ...], StoredTensor]](), list[LowRank]()
    for module, parts in modules.items():
        if _ROWS in parts:
            rows[module] = _tokens(config, module, folder), parts.pop(_ROWS)
        if parts:
            low_rank.append(_low_rank(config, module, parts, path))
    if not (low_rank or replaced or rows):
        raise _wrong(path, "no tensors", "those of an adapter")
    base = config.get("base_model_name_or_path")
    rank = max((each.b.shape[-1] for each in low_rank), default=0)
    return Adapter(tuple(low_rank), replaced, rows, base if isinstance(base, str) and base else None, rank)


def _split(name: str) -> tuple[str, str]:
    """Return module and part; for a tensor that replaces another one its name, and no part."""
    for part in _PARTS:
        if name.endswith(f".{part}"):
            return name.removesuffix(f".{part}").removesuffix(".base_layer"), part
    return name.replace(".base_layer.", "."), ""


def _low_rank(config: Mapping[str, Any], module: str, parts: Mapping[str, StoredTensor], path: Path) -> LowRank:
    is_embedding = _EMBEDDING_A in parts
    names = (_EMBEDDING_A, _EMBEDDING_B) if is_embedding else (_A, _B)
    if any(name not in parts for name in names):
        raise _wrong(path, f"{', '.join(sorted(parts))} of {module}", f"{names[0]} and {names[1]}")
    a, b = (parts[name] for name in names)
    rank = _of_module(config, "rank_pattern", "r", module, path)
    if len(a.shape) != 2 or len(b.shape) != 2 or not a.shape[0] == b.shape[1] == rank:
        raise _wrong(
            path, f"{names[0]} {list(a.shape)} and {names[1]} {list(b.shape)} of {module}",
            f"the rank {rank} of {ADAPTER_CONFIG} as their inner size",
        )  # fmt: skip
    if is_embedding and _MAGNITUDE in parts:
        raise UnsupportedModelError(
            f"{path}: received DoRA on the embedding {module}, expected it on layers", hint=_CONVERT
        )
    alpha = _of_module(config, "alpha_pattern", "lora_alpha", module, path)
    scale = alpha / (sqrt(rank) if config.get("use_rslora") else rank)
    found = LowRank(module, a, b, scale, parts.get(_MAGNITUDE), parts.get(_BIAS), is_embedding)
    for name in (_MAGNITUDE, _BIAS):
        if name in parts and parts[name].shape != found.shape[:1]:
            raise _wrong(path, f"{name} {list(parts[name].shape)} of {module}", f"{list(found.shape[:1])}")
    return found


def _of_module(config: Mapping[str, Any], pattern: str, key: str, module: str, path: Path) -> float:
    """Return the rank or alpha of a module: that of the first pattern that matches the end of its name, as in PEFT."""
    values = config.get(pattern) or {}
    try:
        own = next((each for each in values if re.match(rf"(.*\.)?({each})$", module)), None)
        value = config.get(key) if own is None else values[own]
    except (TypeError, KeyError, re.error):
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        path = path.with_name(ADAPTER_CONFIG)
        raise _wrong(path, f"{key}: {config.get(key)!r} and {pattern}: {str(values)[:80]}", f"a number for {module}")
    return float(value)


def _tokens(config: Mapping[str, Any], module: str, folder: Path) -> tuple[int, ...]:
    """Return the tokens whose rows an adapter has."""
    given = config.get("trainable_token_indices")
    if isinstance(given, dict):
        given = next((found for name, found in given.items() if f".{module}".endswith(f".{name}")), None)
    if not isinstance(given, list) or not given or not all(type(each) is int and each >= 0 for each in given):
        received = f"trainable_token_indices: {str(config.get('trainable_token_indices'))[:80]}"
        raise _wrong(folder / ADAPTER_CONFIG, received, f"the token ids of {module}.{_ROWS}")
    return tuple(given)


def check_fits(adapter: Adapter, tensors: Mapping[str, StoredTensor], folder: Path) -> None:
    """Raise CheckpointError for an adapter whose shapes are not those of the checkpoint's tensors, from
    `stored_tensors`. Modules that have other names in the checkpoint are left to the build, which knows the model."""
    for name, shape, base in _wanted(adapter, tensors):
        if shape not in (base, base[::-1]):
            raise CheckpointError(
                f"{folder}: received a change of {name} for {list(shape)}, expected {list(base)}, as its base has",
                hint=f"give the adapter of this model; its config names {adapter.base or 'no base'}",
            )


def _wanted(
    adapter: Adapter, tensors: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Yield module or parameter, the adapter's shape and the base's."""
    for each in adapter.low_rank:
        if (found := tensors.get(f"{each.module}.weight")) is not None:
            yield each.module, each.shape, found.shape
    for name, tensor in adapter.replaced.items():
        if name in tensors:
            yield name, tensor.shape, tensors[name].shape
    for module, (tokens, tensor) in adapter.rows.items():
        if (found := tensors.get(f"{module}.weight")) is not None:
            yield f"{len(tokens)} tokens of {module}", tensor.shape, (len(tokens), *found.shape[1:])


def _wrong(path: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path}: received {received}, expected {expected}", hint="save the adapter again with peft")
