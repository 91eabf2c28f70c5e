"""Processes of a training, by accelerate: one, or several with DDP or FSDP2, as launched.

    accelerate launch --cpu --num_processes 2 -m speccompile train recipe.yaml
    accelerate launch --use_fsdp --fsdp_version 2 -m speccompile train recipe.yaml

All processes take the same steps; only the first one writes, evaluates and logs.
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
from speccompile.errors import SpeccompileError, UnsupportedModelError, UsageError
from speccompile.extras import naming_extra

if TYPE_CHECKING:
    from accelerate import Accelerator

LONGEST_WAIT = timedelta(days=1)
"""Timeout of processes that wait for the first one, which may compile and run a checkpoint."""

_TO_LET_GO = 0.5
"""Seconds for gloo's threads to release tensors. They need microseconds, but may be scheduled late."""

_REFUSED = ("DEEPSPEED", "MEGATRON_LM", "XLA")


class Processes:
    """This process and its peers.

    device: device of the drafter. rank: index of this process among `count`, from 0 on.
    """

    def __init__(self) -> None:
        """Raise MissingPackageError without accelerate, and UsageError for an unsupported launch mode."""
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
        """Load the target's weights from its files to this device. With FSDP each process holds a shard of every layer
        and gathers one layer at a time during a forward pass."""
        if self._shares_weights:
            mesh = init_device_mesh(self.device.type, (self.count,))
            for layer in _shardable_layers(model):
                with_numbers(layer).to(self.device)
                self._target.append(fully_shard(layer, mesh=mesh, reshard_after_forward=True))
        return with_numbers(model).to(self.device)

    def prepare(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> nn.Module:
        """Return the model on its device, wrapped for the processes. The optimizers then hold its parameters."""
        prepared: nn.Module = self._accelerator.prepare(model, *optimizers)[0]
        return prepared

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which gradients are not synchronized."""
        return self._accelerator.no_sync(model) if self.count > 1 else nullcontext()

    def clip(self, parameters: Iterable[nn.Parameter], norm: float) -> float:
        """Clip the gradients to `norm`. Return their norm before clipping, over all processes."""
        return float(whole_tensor(self._accelerator.clip_grad_norm_(parameters, norm)))

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, in every process."""
        return self._accelerator.reduce(values, "sum")

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all processes by rank, in every process."""
        from accelerate.utils import gather_object

        return gather_object([value]) if self.count > 1 else [value]

    def broadcast(self, *values: float) -> list[float]:
        """Return the first process's numbers in every process, because clocks differ."""
        if self.count == 1:
            return list(values)
        from accelerate.utils import broadcast

        given = torch.tensor(values, dtype=torch.float64, device=self.device)
        return broadcast(given, from_process=0).tolist()

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the first process. Return its result, or raise its SpeccompileError, in every process."""
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
        """Unshard the drafter's and the target's weights in every process: plain tensors, also in state_dict().
        One process may then use them while the other ones wait."""
        shards = [module for module in model.modules() if isinstance(module, FSDPModule)]
        with ExitStack() as stack:
            stack.enter_context(self.whole_target())
            for shard in shards:
                shard.unshard()
                stack.callback(shard.reshard)
            for module in model.modules() if shards else ():  # these hooks would reshard the weights first
                stack.enter_context(patched_attribute(module, "_state_dict_pre_hooks", OrderedDict()))
            yield

    @contextmanager
    def whole_target(self) -> Iterator[None]:
        """Unshard the target in every process, which then can run it alone."""
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
    """Return the layers that share no weight with another module; none if the model has no list of layers."""
    try:
        layers = find_layers(model)
    except UnsupportedModelError:
        return []
    uses = Counter(id(weight) for part in model.modules() for weight in part.parameters(recurse=False))
    return [layer for layer in layers if all(uses[id(weight)] == 1 for weight in layer.parameters())]


def _shutdown() -> None:
    """Destroy the process group before Python ends, and wait. A thread of gloo releases its last sent tensors with a
    delay and needs the interpreter for it: too late a release would end the process by SIGABRT."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        time.sleep(_TO_LET_GO)


def whole_tensor(value: Tensor) -> Tensor:
    """Return a possibly sharded tensor, unsharded. All processes call this."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def put(value: Tensor, like: Tensor) -> Tensor:
    """Return an unsharded tensor with the device and the sharding of `like`."""
    if isinstance(like, DTensor):
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return value.to(like.device)


def _accelerator() -> "Accelerator":
    with naming_extra("training"):
        from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
    asked = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if asked != "no":
        raise UsageError(
            f"this training was launched with --mixed_precision {asked}, expected it without",
            hint="train.schedule.precision in the recipe says the precision; leave --mixed_precision out, or say no",
        )
    # A step may leave parameters unused: heads of depths that no sample reaches.
    parallel = DistributedDataParallelKwargs(find_unused_parameters=True)
    patience = InitProcessGroupKwargs(timeout=LONGEST_WAIT)
    # Without `cpu`, accelerate treats processes without an accelerator each as a single process.
    alone = not torch.accelerator.is_available()
    return Accelerator(cpu=alone, mixed_precision="no", kwargs_handlers=[parallel, patience])


def _is_set(name: str) -> bool:
    """Return whether an environment variable of accelerate's launcher is set to true."""
    return os.environ.get(name, "false").lower() in ("true", "1")
