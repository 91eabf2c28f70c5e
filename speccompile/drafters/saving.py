"""Save a trained head in a folder of the same dialect as its original, with the original's other files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.weights import INDEX
from speccompile.drafters.folder import read_folder
from speccompile.drafters.weights import read_sources
from speccompile.plan.head import HeadPlan

_WEIGHTS = "model.safetensors"
_GENERIC = "pytorch_model"
"""Generic name of a pickle with any weights, which the saved file does not keep."""
_DTYPE_KEYS = ("torch_dtype", "dtype")


def save_head(
    head: HeadPlan,
    trained: Mapping[str, Tensor],
    describe: Callable[[dict[str, Any]], dict[str, Any]],
    folder: Path,
    dtype: torch.dtype,
) -> None:
    """Write a new folder with all weights in one safetensors file. trained: tensors by normalised names, saved in
    `dtype` under their published names. Other tensors (vocabulary maps, copies of the target's embedding) keep their
    values and dtypes. describe: maps the original config, with its dtype keys set to `dtype`, to the saved one."""
    folder.mkdir(parents=True)
    tensors = {
        head.tensors[name].name: tensor.detach().to("cpu", dtype).reshape(head.tensors[name].shape).contiguous()
        for name, tensor in trained.items()
    }
    others = {
        name: source
        for name, source in read_folder(head.folder).tensors.items()
        if name not in tensors and Path(source.file) in head.files
    }
    tensors |= {name: tensor.clone() for name, tensor in read_sources(head.folder, others).items()}
    for file in head.files:
        if file.suffix == ".json" and file.name not in (CONFIG, INDEX):
            (folder / file.name).write_bytes((head.folder / file).read_bytes())
    config = json.loads((head.folder / CONFIG).read_text())
    dtypes = {key: str(dtype).removeprefix("torch.") for key in _DTYPE_KEYS if key in config}
    write_config(folder, describe(config | dtypes))
    save_file(tensors, folder / _weights_file(head), {"format": "pt"})


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _weights_file(head: HeadPlan) -> str:
    """Return the name of the weights file: of a single original file its stem, because engines look for it
    (medusa_lm_head.safetensors)."""
    names = {file.stem for file in head.files if file.suffix != ".json"}
    name = names.pop() if len(names) == 1 else _GENERIC
    return _WEIGHTS if name == _GENERIC else f"{name}.safetensors"
