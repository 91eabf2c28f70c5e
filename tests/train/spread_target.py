"""A target whose layers are spread over processes, read by all and by the first alone; in a process of its own.

python -m tests.train.spread_target FOLDER OUTPUT     by a launcher's; the first writes what it read
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor

from speccompile.compiler.models.load import load_model
from speccompile.train.processes import Processes
from speccompile.train.teacher import Teacher
from tests.train.toy_training import share_weights

TOKENS = torch.arange(24).view(2, 12) % 19
TAPS = ("layers.0.output", "norm.output")


def parts_of(model: nn.Module) -> list[float]:
    """Return of each weight that is spread, how much of it is here."""
    spread = [weight for weight in model.parameters() if isinstance(weight, DTensor)]
    return [weight.to_local().numel() / weight.numel() for weight in spread]


def main() -> None:
    share_weights()
    processes = Processes()
    model = processes.put_target(load_model(Path(sys.argv[1]), 64))
    teacher, real = Teacher(model, TAPS), torch.ones_like(TOKENS, dtype=torch.bool)
    parts = parts_of(model)
    together = teacher.forward(TOKENS + processes.rank, real, real)
    with processes.full_parameters(nn.Linear(1, 1)):
        assert not parts_of(model), "a part of the weights"
        if processes.is_first:
            alone = teacher.forward(TOKENS, real, real)
            alone = teacher.forward(TOKENS, real, real)  # as often as the first likes
    assert parts_of(model) == parts, "the weights are not given back"
    again = teacher.forward(TOKENS, real, real)
    every = processes.all_gather(together.logits)
    if processes.is_first:
        read = {"second": every[1], "alone": alone.logits, "again": again.logits, "features": alone.features}
        save_file(read | {"parts": torch.tensor(parts)}, sys.argv[2])


if __name__ == "__main__":
    main()
