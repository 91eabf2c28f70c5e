"""The processes of a training, by accelerate: one; or several, with DDP or FSDP2, as they were launched.

    accelerate launch --cpu --num_processes 2 -m speccompile train recipe.yaml
    accelerate launch --use_fsdp --fsdp_version 2 -m speccompile train recipe.yaml

All of them go through the same steps; the first alone writes, judges and speaks.
"""

import atexit
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from speccompile.compiler.step.layers import find_layers
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.weights.tensor import with_numbers
from speccompile.errors import EngineError, SpeccompileError, UnsupportedModelError, UsageError

if TYPE_CHECKING:
    from accelerate import Accelerator

LONGEST_WAIT = timedelta(days=1)
"""That processes wait for the first, which may compile and run a checkpoint meanwhile."""

_TO_LET_GO = 0.5
"""Seconds. They need microseconds; a busy machine may give them late."""

_REFUSED = ("DEEPSPEED", "MEGATRON_LM", "XLA")


class Processes:
    """This process, and those beside it.

    device: where the learner is. rank: which of `count` this is, 0 the first.
    """

    def __init__(self) -> None:
        """Raises EngineError without accelerate, UsageError for a way of launching that is none of the above."""
        self._accelerator = _accelerator()
        kind = self._accelerator.distributed_type.name
        if kind == "FSDP" and not self._accelerator.is_fsdp2:
            kind = "FSDP of version 1"
        elif kind != "FSDP" and _is_set("ACCELERATE_USE_FSDP"):
            kind = f"FSDP, for which accelerate has no way with {kind}"
        if kind in _REFUSED or (kind.startswith("FSDP") and kind != "FSDP"):
            raise UsageError(
                f"this training was launched with {kind}, expected one process, DDP, or FSDP of version 2 on devices",
                hint="launch it with accelerate launch --multi_gpu, --cpu, or --use_fsdp --fsdp_version 2",
            )
        self.device: torch.device = self._accelerator.device
        self.rank: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes
        self._shares_weights = kind == "FSDP"
        self._target: list[FSDPModule] = []
        if self.count > 1:
            atexit.register(_shutdown)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def put_target(self, model: nn.Module) -> nn.Module:
        """The target, whose weights are still in its files, in memory on this device. With FSDP each process has a part
        of every layer, and gathers one layer at a time while the target reads."""
        if self._shares_weights:
            mesh = init_device_mesh(self.device.type, (self.count,))
            for layer in _shardable_layers(model):
                with_numbers(layer).to(self.device)
                self._target.append(fully_shard(layer, mesh=mesh, reshard_after_forward=True))
        return with_numbers(model).to(self.device)

    def prepare(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> nn.Module:
        """The model on its device, wrapped for those processes, whose parameters the optimizers then have."""
        prepared: nn.Module = self._accelerator.prepare(model, *optimizers)[0]
        return prepared

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """In which gradients stay in this process."""
        return self._accelerator.no_sync(model) if self.count > 1 else nullcontext()

    def clip(self, parameters: Iterable[nn.Parameter], norm: float) -> float:
        """Scale gradients down to `norm`, if theirs is higher. Returns theirs, that of all processes."""
        return float(whole_tensor(self._accelerator.clip_grad_norm_(parameters, norm)))

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Added up over all processes, in every one."""
        return self._accelerator.reduce(values, "sum")

    def all_gather(self, value: Any) -> list[Any]:
        """One of every process, in their order, in every one."""
        from accelerate.utils import gather_object

        return gather_object([value]) if self.count > 1 else [value]

    def broadcast(self, *values: float) -> list[float]:
        """The first process's numbers, in every one: clocks differ."""
        if self.count == 1:
            return list(values)
        from accelerate.utils import broadcast

        given = torch.tensor(values, dtype=torch.float64, device=self.device)
        return broadcast(given, from_process=0).tolist()

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """What the first process's work returns, in every one; its SpeccompileError is raised in every one."""
        if self.count == 1:
            return work()
        from accelerate.utils import broadcast_object_list

        done: list[Any] = [None, None]
        if self.is_first:
            try:
                done[0] = work()
            except SpeccompileError as error:
                done[1] = error
        result, failure = broadcast_object_list(done, from_process=0)
        if failure is not None:
            raise failure
        return result

    @contextmanager
    def full_parameters(self, model: nn.Module) -> Iterator[None]:
        """In which every process has all of the weights, as plain tensors, also in state_dict(), and all of the
        target's: one may use them while the others wait."""
        shards = [module for module in model.modules() if isinstance(module, FSDPModule)]
        with ExitStack() as stack:
            stack.enter_context(self.whole_target())
            for shard in shards:
                shard.unshard()
                stack.callback(shard.reshard)
            for module in model.modules() if shards else ():  # hooks that would take the weights apart before that
                stack.enter_context(patched_attribute(module, "_state_dict_pre_hooks", OrderedDict()))
            yield

    @contextmanager
    def whole_target(self) -> Iterator[None]:
        """In which every process has all of the target's weights, and runs it alone."""
        for layer in self._target:
            layer.set_reshard_after_forward(False)
            layer.unshard()
        try:
            yield
        finally:
            for layer in self._target:
                layer.set_reshard_after_forward(True)
                layer.reshard()


def _shardable_layers(model: nn.Module) -> list[nn.Module]:
    """The layers that share no weight with any other part of the model; none where they stand in no list."""
    try:
        layers = find_layers(model)
    except UnsupportedModelError:
        return []
    uses = Counter(id(weight) for part in model.modules() for weight in part.parameters(recurse=False))
    return [layer for layer in layers if all(uses[id(weight)] == 1 for weight in layer.parameters())]


def _shutdown() -> None:
    """Before Python ends. A thread of gloo lets go of the last tensors that it sent, which takes the interpreter, some
    time after they arrived: one that came too late for that would end the process by SIGABRT."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        time.sleep(_TO_LET_GO)


def whole_tensor(value: Tensor) -> Tensor:
    """A tensor of which every process may have a part. All of them call this."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def put(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, where and as another one is: on its device, with its parts in its processes."""
    if isinstance(like, DTensor):
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value.to(like.device)


def _accelerator() -> "Accelerator":
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
    except ImportError:
        raise EngineError(
            "training needs the Python package accelerate, which is not installed",
            hint='pip install "speccompile[train]"',
        ) from None
    asked = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if asked != "no":
        raise UsageError(
            f"this training was launched with --mixed_precision {asked}, expected it without",
            hint="train.schedule.precision in the recipe says the precision; leave --mixed_precision out, or say no",
        )
    # A step may use a part of the parameters: heads of depths that no text reaches.
    parallel = DistributedDataParallelKwargs(find_unused_parameters=True)
    patience = InitProcessGroupKwargs(timeout=LONGEST_WAIT)
    # Without `cpu`, accelerate takes processes that have no device each for one that is alone.
    alone = not torch.accelerator.is_available()
    return Accelerator(cpu=alone, mixed_precision="no", kwargs_handlers=[parallel, patience])


def _is_set(name: str) -> bool:
    """Whether a variable by which accelerate launches says yes."""
    return os.environ.get(name, "false").lower() in ("true", "1")
