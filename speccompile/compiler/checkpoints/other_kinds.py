"""Refusals of folders that are no checkpoint of a whole model in Hugging Face layout, by what they hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.architectures import HEADS
from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.weights import INDEX, WEIGHTS
from speccompile.errors import CheckpointError

ADAPTER = "adapter_config.json"


def refuse_other_kinds(folder: Path, config: Mapping[str, Any] | None) -> None:
    """Raise CheckpointError for the folder of a LoRA adapter, of GGUF files beside others or with a drafter's head, and
    for weights that MLX has packed. config: of its config.json, None without one."""
    has_weights = any((folder / name).exists() for name in (WEIGHTS, INDEX, GGUF_INDEX))
    if (folder / ADAPTER).is_file() and not has_weights:
        base = (read_json_object(folder / ADAPTER) or {}).get("base_model_name_or_path")
        of = f" of {base}" if isinstance(base, str) and base else ""
        raise CheckpointError(
            f"{folder}: received an adapter{of} (it has {ADAPTER}), expected a whole model",
            hint="merge it into its base model: load it with peft.AutoPeftModelForCausalLM, then "
            "merge_and_unload().save_pretrained(FOLDER)",
        )
    packed = sorted(file.name for file in folder.glob("*.gguf"))
    if packed and not has_weights:
        raise CheckpointError(
            f"{folder}: received GGUF files ({', '.join(packed[:3])}) beside other weights, expected one model",
            hint="give the GGUF file itself, or a folder without the others",
        )
    written = dict(config or {})
    match written:
        case {"architectures": [str(architecture)]} if packed and architecture in HEADS:
            raise CheckpointError(
                f"{(folder / packed[0]).resolve()}: received the head of a drafter (general.architecture "
                f"'{architecture}'), expected a whole model",
                hint="name it as drafter.model, beside the target that it was trained for",
            )
        case {"quantization": {"group_size": int(size), "bits": int(bits)} as packing} if (
            written.get("quantization_config", packing) == packing
        ):
            raise CheckpointError(
                f"{folder / CONFIG}: quantization: received weights that MLX has packed ({bits} bits in groups of "
                f"{size}), expected a layout that transformers reads",
                hint="give the model that it was converted from, or unpack it: mlx_lm.convert --dequantize",
            )
