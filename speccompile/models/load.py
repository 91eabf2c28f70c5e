"""Load a checkpoint folder with transformers: safetensors only, no remote code, nothing missing."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils.logging import disable_progress_bar

from speccompile.errors import CheckpointError, UnsupportedModelError


def load_model(folder: Path, max_length: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The causal LM in `folder`, in eval mode, with transformers' eager attention, for at most `max_length` positions.

    Raises UnsupportedModelError for an architecture that transformers does not know or whose position scaling would
    change within `max_length`, CheckpointError for weights that are missing or cannot be read.
    """
    config = _config(folder)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, attn_implementation="eager", use_safetensors=True,
            local_files_only=True, output_loading_info=True,
        )  # fmt: skip
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise _unreadable(folder, config, error) from error
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise CheckpointError(
            f"{folder}: the checkpoint lacks {len(lacking)} tensors of {type(model).__name__}, first {lacking[0]}",
            hint="check that every shard is there and that config.json belongs to these weights",
        )
    freeze_positions(model, max_length)
    return model.eval().requires_grad_(False)


def _config(folder: Path) -> PretrainedConfig:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedModelError(
            f"{folder}: transformers does not know this architecture: {first_line(error)}",
            hint="only architectures that come with transformers can be compiled; remote code is never run",
        ) from error


def _unreadable(folder: Path, config: PretrainedConfig, error: Exception) -> Exception:
    if isinstance(error, ValueError) and "Unrecognized configuration class" in str(error):
        return UnsupportedModelError(
            f"{folder}: {type(config).__name__} has no causal language model in transformers",
            hint="only decoder-only causal language models can be compiled",
        )
    return CheckpointError(
        f"{folder}: the weights cannot be loaded: {first_line(error)}", hint="copy or download the checkpoint again"
    )


def freeze_positions(model: nn.Module, max_length: int) -> None:
    """Pin rotary frequencies that would change with the sequence to those of the first `max_length` positions.

    `dynamic` scaling and `longrope` switch their frequencies once a sequence outgrows the original positions. Rows in
    a cache would then belong to other frequencies than their queries, so this is refused; below that they are constant.
    """
    for name, module in model.named_modules():
        kinds = getattr(module, "rope_type", None)
        by_layer = kinds if isinstance(kinds, dict) else {None: kinds}
        changing = {kind for kind in by_layer.values() if kind == "dynamic" or kind == "longrope"}
        if not changing:
            continue
        limit = _original_positions(module.config)
        if max_length > limit:
            raise UnsupportedModelError(
                f"rope scaling {changing.pop()!r} in {name} changes its frequencies beyond {limit} positions, and "
                f"cache.max_length is {max_length}",
                hint=f"set cache.max_length to {limit} or less",
            )
        assert "default" not in ROPE_INIT_FUNCTIONS or isinstance(kinds, (str, dict))
        module.rope_type = dict.fromkeys(by_layer, "default") if isinstance(kinds, dict) else "default"


def _original_positions(config: Any) -> int:
    scaling = getattr(config, "rope_parameters", None) or {}
    return int(scaling.get("original_max_position_embeddings") or config.max_position_embeddings)


def first_line(error: BaseException) -> str:
    """The first line of an error that is not ours, for a message that names what we were doing."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def without_progress_bars() -> None:
    """Keep transformers from drawing its own bars between our lines on stderr. For the command line."""
    disable_progress_bar()
