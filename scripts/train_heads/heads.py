"""A head of any kind: made new, saved as a folder that a recipe reads, and loaded from it."""

import json
import math
from pathlib import Path

import torch
from dflash import DFlash
from eagle3 import DRAFT_VOCABULARY, Eagle3
from medusa import Medusa
from safetensors.torch import load_file, save_file
from target import VOCABULARY, Target
from texts import SEQUENCE
from torch import Tensor

Head = Eagle3 | DFlash | Medusa


def new_head(name: str, target: Target, texts: dict[str, Tensor], seed: int) -> Head:
    torch.manual_seed(seed)
    if name == "medusa":
        return Medusa(target)
    if name == "eagle3":
        written = texts["tokens"][torch.arange(SEQUENCE) >= texts["prompts"][:, None]]
        return Eagle3(target, written.bincount(minlength=VOCABULARY).topk(DRAFT_VOCABULARY).indices.sort().values)
    unused = texts["tokens"].flatten().bincount(minlength=VOCABULARY) == 0
    return DFlash(target, int(torch.where(unused, target.embedding.norm(dim=1), math.inf).argmin()))


def save(head: Head, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in head.state_dict().items()}
    save_file(tensors | head.extra(), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    (folder / "config.json").write_text(json.dumps(head.config(), indent=2) + "\n")


def load(name: str, target: Target, folder: Path) -> Head:
    tensors = load_file(folder / "model.safetensors")
    config, report = (json.loads((folder / file).read_text()) for file in ("config.json", "training.json"))
    if name == "eagle3":
        offsets = tensors.pop("d2t")
        tensors.pop("t2d")
        head: Head = Eagle3(target, offsets + torch.arange(len(offsets)))
    elif name == "dflash":
        head = DFlash(target, config["dflash_config"]["mask_token_id"])
    else:
        head = Medusa(target, report["tree"])
    head.load_state_dict({key: value.float() for key, value in tensors.items()})
    return head.eval()
