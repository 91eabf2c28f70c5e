"""A head of any kind: made new, saved as a folder that a recipe reads, and loaded from it."""

import json
import shutil
from pathlib import Path

import torch
from dflash import DFlash
from dspark import DSpark
from eagle import Eagle
from eagle3 import Eagle3
from head import Head
from hydra import Hydra
from kangaroo import Kangaroo
from medusa import Medusa
from p_eagle import PEagle
from pard import Pard
from safetensors.torch import load_file, save_file
from target import FOLDER, Target
from torch import Tensor

SHIPPED: dict[str, type[Head]] = {"eagle3": Eagle3, "dflash": DFlash, "medusa": Medusa}
OTHERS: dict[str, type[Head]] = {
    "eagle": Eagle, "hydra": Hydra, "kangaroo": Kangaroo, "dspark": DSpark, "p_eagle": PEagle, "pard": Pard
}  # fmt: skip
KINDS = SHIPPED | OTHERS


def new_head(name: str, target: Target, texts: dict[str, Tensor], seed: int) -> Head:
    torch.manual_seed(seed)
    return KINDS[name].new(target, texts)


def save(head: Head, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in head.tensors().items()}
    save_file(tensors | head.extra(), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    (folder / "config.json").write_text(json.dumps(head.config(), indent=2) + "\n")
    for file in head.files:
        shutil.copy(FOLDER / file, folder)


def load(name: str, target: Target, folder: Path) -> Head:
    tensors = load_file(folder / "model.safetensors")
    config, report = (json.loads((folder / file).read_text()) for file in ("config.json", "training.json"))
    head = KINDS[name].found(target, config, tensors, report)
    head.restore({key: value.float() for key, value in tensors.items() if key not in head.extra()})
    return head.eval()
