"""A student of a few hundred numbers, and trainings of it that run in a process of their own.

python -m tests.train.toy_training '{"folder": "..", "steps": 20, ..}' ..     by one process, or by a launcher's
"""

import json
import math
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from speccompile.errors import SpeccompileError
from speccompile.plan.training_plan import SchedulePlan
from speccompile.train import processes as processes_room
from speccompile.train.curves import MetricsLog
from speccompile.train.loop import EvaluationResult, EvaluationSchedule, Saving, Trained, train
from speccompile.train.objective import WeightedLoss
from speccompile.train.processes import Processes

# At these sizes a second thread costs more than it gives, and six times as much on a busy machine.
torch.set_num_threads(1)

TOKENS, WIDTH, TEXTS, SEED = 11, 8, 64, 7

SCHEDULE = SchedulePlan(
    steps=20, seconds=None, batch_size=8, accumulate=1, optimizer="adamw", learning_rate=0.02, matrix_rate=None,
    weight_decay=0.1, warmup=4, final=0.1, clip=1.0, precision="float32", checkpointing=False,
)  # fmt: skip


class Toy(nn.Module):
    """A drafter from a token to the logits of the next one."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embed_tokens = nn.Embedding(TOKENS, WIDTH)
        self.hidden = nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = nn.LayerNorm(2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.lm_head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("ids", torch.arange(TOKENS))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map int64 [B] to float32 [B, TOKENS]."""
        x = self.embed_tokens(tokens)
        x = x + self.back(self.dropout(functional.silu(self.norm(self.hidden(x)))))
        return self.lm_head(x)


def texts(step: int, part: int, parts: int, size: int) -> np.ndarray:
    """Return the samples of a part."""
    return np.random.default_rng((SEED, step)).integers(0, TEXTS, size)[part::parts]


class ToyWeigh:
    """Samples are tokens, each with its successor and a weight of its own.

    before: what happens before a part of a step is weighed; what it gives is a factor of the loss.
    """

    def __init__(self, student: nn.Module, size: int) -> None:
        self.student, self.size, self.calls = student, size, []
        self.before = {}

    def __call__(self, step: int, part: int, parts: int) -> WeightedLoss:
        self.calls.append((step, part, parts))
        scale = self.before[step](part) if step in self.before else 1.0
        samples = torch.from_numpy(texts(step, part, parts, self.size))
        tokens, wanted, weights = samples % TOKENS, (3 * samples + 1) % TOKENS, 1.0 + samples % 3
        losses = functional.cross_entropy(self.student(tokens).float(), wanted, reduction="none")
        total = (losses * weights).sum() * scale
        right = losses.detach().sum().item()
        return WeightedLoss(total, weights.sum(), {"loss/1": (right, len(samples))})


def run(
    folder: Path, *, student: nn.Module | None = None, weigh: ToyWeigh | None = None, save_every: float = 1e9,
    keep: int = 2, evaluate_every: float | None = None, scores: dict[int, float] | None = None,
    plan: dict | None = None, with_curves: bool = False, **schedule,
) -> tuple[Trained, nn.Module]:  # fmt: skip
    """Return a training of the toy. scores: of the evaluations of steps; -step for others."""
    student = student or Toy()
    changed = replace(SCHEDULE, **schedule)
    processes = Processes()

    def evaluate(step: int) -> EvaluationResult:
        held = student.state_dict()
        assert not any(isinstance(value, DTensor) for value in held.values()), "a part of the weights"
        size = sum(float(value.abs().sum()) for value in held.values())
        return EvaluationResult((scores or {}).get(step, -float(step)), {"by_depth": [0.5, 0.25], "size": size})

    evaluation = None if evaluate_every is None else EvaluationSchedule(evaluate, evaluate_every)
    curves = MetricsLog(folder, "toy") if with_curves and processes.is_first else None
    trained = train(
        processes, student, weigh or ToyWeigh(student, changed.batch_size), changed,
        Saving(folder / "checkpoints", save_every, keep, plan or {"loss": {"kind": "ce"}, "seed": SEED}),
        seed=SEED, evaluation=evaluation, samples=lambda *at: texts(*at, changed.batch_size).tolist(), curves=curves,
    )  # fmt: skip
    return trained, student


class Stopped(Exception):
    """Error that ends a training in the middle of a step."""


def fail(part: int) -> float:
    raise Stopped


def run_until_it_fails(folder, step=10, *, student=None, save_every=0, **keys):
    """Run a training that ends in the middle of the step after `step`."""
    student = student or Toy()
    weigh = ToyWeigh(student, 8)
    weigh.before[step] = fail
    try:
        run(folder, student=student, weigh=weigh, save_every=save_every, **keys)
    except Stopped:
        return
    raise AssertionError("the training did not stop")


def share_weights() -> None:
    """Monkeypatch accelerate to shard weights by FSDP2 on processors, which torch can and accelerate leaves out."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    plain = processes_room._accelerator

    def sharing() -> object:
        accelerator = plain()
        accelerator.state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
        return accelerator

    processes_room._accelerator = sharing


def train_once(wanted: dict) -> None:
    """Run one training as `wanted` says. kill_at, fail_at, nan_at: a step, and how it ends.
    largest_file: bytes. sharded: by FSDP2."""
    folder = Path(wanted.pop("folder"))
    if limit := wanted.pop("largest_file", None):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if wanted.pop("sharded", False):
        share_weights()
    student = Toy()
    weigh = ToyWeigh(student, wanted.get("batch_size", SCHEDULE.batch_size))
    ends = {
        "kill_at": lambda part: os.kill(os.getpid(), signal.SIGKILL),
        "fail_at": fail,
        "nan_at": lambda part: math.nan,
    }
    weigh.before = {wanted.pop(name): end for name, end in ends.items() if name in wanted}
    run(folder, student=student, weigh=weigh, **wanted)


def main() -> None:
    """Run several trainings in this process, as a process takes longer to start than one takes to train. Each begins in
    the state of a new process."""
    from accelerate.state import AcceleratorState

    plain = processes_room._accelerator
    for said in sys.argv[1:]:
        processes_room._accelerator = plain
        AcceleratorState._reset_state()  # where FSDP is noted
        try:
            train_once(json.loads(said))
        except SpeccompileError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
