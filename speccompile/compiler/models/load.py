"""Load a checkpoint folder with transformers: safetensors only, no remote code, nothing missing."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from speccompile.compiler.checkpoints.encoder_decoder import hidden_tokens
from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.quantization import KEYS
from speccompile.compiler.models.adapter import merge_adapter
from speccompile.compiler.models.sourced import sourced
from speccompile.compiler.models.speech import AUTO_CLASS, hears, speech_model
from speccompile.compiler.models.text_decoder import text_decoder
from speccompile.compiler.step.frequencies import freeze_positions
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.weights.checkpoint import checkpoint_sources
from speccompile.compiler.weights.tensor import WeightTensor
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.progress import LOGGER

_LACKING = "check that every shard is there and that config.json belongs to these weights"
_TIED = (
    "if the head is the embedding, set tie_word_embeddings: true in config.json; else check that every shard is there"
)
_WRONG = (
    ArithmeticError, AttributeError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError,
)  # fmt: skip
"""Errors of transformers and safetensors over weights that do not match a config."""


WEIGHT_SUFFIXES = (".safetensors", ".gguf")
"""Suffixes of files whose numbers a model computes with."""


@dataclass(frozen=True)
class ModelFiles:
    """A model as stages of a build see it: config and weights, relative to `folder`, and the number of its tokens. What
    a recipe calls the model decides nothing that is built from it."""

    folder: Path
    files: tuple[Path, ...]
    vocabulary_size: int


def load_model(folder: Path, max_length: int) -> nn.Module:
    """Load the causal LM in `folder` in float32 and eval mode, with transformers' eager attention, for at most
    `max_length` positions. Its weights stay in the folder's files: see `speccompile.compiler.weights`.

    Raise UnsupportedModelError for an architecture that transformers does not know, for an unsupported quantization
    method and for position scaling that would change within `max_length`; CheckpointError for weights that are missing
    or unreadable.
    """
    model, unused = assemble(folder, *read_model(folder), max_length)
    if unused:
        LOGGER.warning(
            "%s: %d tensors are not part of the model and left out, first %s", folder, len(unused), unused[0]
        )
    return model


def read_model(folder: Path) -> tuple[PretrainedConfig, dict[str, Tensor]]:
    """Return the config of the causal LM in `folder`, and its tensors by the names there, weights unread; for a
    multimodal checkpoint those of its text decoder, by the names of a causal LM. Raise as `load_model`."""
    config = _config(folder)
    try:
        return text_decoder(config, _tensors(folder))
    except _WRONG as error:
        raise _unreadable(folder, config, error) from error


def assemble(
    folder: Path, config: PretrainedConfig, tensors: dict[str, Tensor], max_length: int
) -> tuple[nn.Module, list[str]]:
    """Return the causal LM of a config over tensors from `folder`, as `load_model` does, and names of tensors that are
    no part of it. Raise as `load_model`."""
    try:
        model, report = _model_over(tensors, config)
    except _WRONG as error:
        _compare_shapes(folder, config, tensors)
        raise _unreadable(folder, config, error) from error
    if report["mismatched_keys"]:
        _compare_shapes(folder, config, tensors)
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise CheckpointError(
            f"{folder}: the checkpoint lacks {len(lacking)} tensors of {type(model).__name__}, first {lacking[0]}",
            hint=_TIED if lacking == ["lm_head.weight"] else _LACKING,
        )
    merge_adapter(model, folder)
    freeze_positions(model, max_length)
    whole = model.eval().requires_grad_(False)
    if config.is_encoder_decoder:
        whole = speech_model(whole, folder) if hears(config) else sourced(whole)
        whole.hidden = hidden_tokens(folder)
    return whole, sorted(report["unexpected_keys"])


def _auto_class(config: PretrainedConfig) -> Any:
    """Return transformers' class that makes the model of a config."""
    if config.is_encoder_decoder:
        return AUTO_CLASS if hears(config) else AutoModelForSeq2SeqLM
    return AutoModelForCausalLM


def _compare_shapes(folder: Path, config: PretrainedConfig, tensors: dict[str, Tensor]) -> None:
    """Raise CheckpointError for the first tensor whose shape is not the one that the config gives the model's. Only for
    weights that cannot be loaded: loading may change shapes."""
    try:
        with torch.device("meta"):
            wanted = _auto_class(config).from_config(config).state_dict()
    except _WRONG:
        return
    for name, tensor in tensors.items():
        if name in wanted and wanted[name].shape != tensor.shape:
            raise CheckpointError(
                f"{folder}: received tensor '{name}' of shape {list(tensor.shape)}, expected "
                f"{list(wanted[name].shape)} by config.json",
                hint="check that config.json belongs to these weights: the sizes that it gives are others",
            )


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of the checkpoint's files by the names there, weights unread."""
    weights, others = checkpoint_sources(folder)
    tensors: dict[str, Tensor] = {name: WeightTensor(source) for name, source in weights.items()}
    for file in sorted({tensor.file for tensor in others.values()}):
        with safe_open(folder / file, framework="pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name, tensor in others.items() if tensor.file == file}
    return tensors


def read_whole(folder: Path, kind: Any) -> tuple[nn.Module, dict[str, Any]]:
    """Return the whole model in `folder` by a class of transformers such as AutoModelForImageTextToText, and what
    transformers reports about its tensors. Raise CheckpointError and UnsupportedModelError."""
    config = _config(folder)
    try:
        return _model_over(_tensors(folder), config, kind)
    except _WRONG as error:
        raise _unreadable(folder, config, error) from error


def _model_over(
    tensors: dict[str, Tensor], config: PretrainedConfig, kind: Any = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Return transformers' model over some tensors, renamed and combined as transformers does for a folder, and its
    report."""
    with torch.device("meta"):  # the class, and the config of the causal language model
        empty = (kind or _auto_class(config)).from_config(config)
    with _as_loaded():
        model, report = type(empty).from_pretrained(
            None, config=empty.config, state_dict=tensors, dtype=torch.float32, attn_implementation="eager",
            output_loading_info=True,
        )  # fmt: skip
    return model, report


def _as_loaded() -> AbstractContextManager[None]:
    """Keep transformers from initializing a module whose tensors are all in the checkpoint, inside a `with` block. It
    does so for classes whose code writes into them (Youtu's row of padding, Zaya's last bias)."""
    known = PreTrainedModel._initialize_weights

    def initialize(model: PreTrainedModel, module: nn.Module, is_custom_code: bool = False) -> None:
        held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not held or not all(getattr(tensor, "_is_hf_initialized", False) for tensor in held):
            known(model, module, is_custom_code)

    return patched_attribute(PreTrainedModel, "_initialize_weights", initialize)


def _config(folder: Path) -> PretrainedConfig:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (StrictDataclassError, *_WRONG) as error:
        known = (read_json_object(folder / CONFIG) or {}).get("model_type") in CONFIG_MAPPING
        if known or isinstance(error, StrictDataclassError):
            raise CheckpointError(
                f"{folder / CONFIG}: transformers refuses it: {' '.join(str(error).split())}",
                hint="check the checkpoint's files",
            ) from error
        raise UnsupportedModelError(
            f"{folder}: transformers does not know this architecture: {first_line(error)}",
            hint="only architectures that come with transformers can be compiled; remote code is never run",
        ) from error
    for key in KEYS:  # its weights are read as floats
        vars(config).pop(key, None)
    return config


def _unreadable(folder: Path, config: PretrainedConfig, error: Exception) -> Exception:
    if isinstance(error, ValueError) and "Unrecognized configuration class" in str(error):
        return UnsupportedModelError(
            f"{folder}: {type(config).__name__} has no causal language model in transformers",
            hint="only decoder-only causal language models can be compiled",
        )
    return CheckpointError(
        f"{folder}: the weights cannot be loaded: {first_line(error)}",
        hint="check that config.json belongs to these weights: their files are whole",
    )


def first_line(error: BaseException) -> str:
    """Return the first line of a foreign error, for a message that names our operation."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def quiet_transformers() -> None:
    """Keep transformers' bars and tables off stderr, where our own lines go. For the command line.

    Our own messages report what matters of them (missing and unused tensors).
    """
    logging.disable_progress_bar()
    logging.set_verbosity_error()
