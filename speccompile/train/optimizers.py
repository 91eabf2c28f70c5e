"""Optimizers: AdamW, or Muon for matrices and AdamW for the rest; learning rates over the budget."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.plan.training_plan import SchedulePlan
from speccompile.train.processes import put, whole_tensor

OVER_TOKENS = ("lm_head", "embed_tokens", "markov")
"""Name parts of matrices with one row per token, which AdamW trains: Muon equalizes all directions of an update, which
is wrong for rows of rare tokens (Jordan et al. 2024, "Muon: an optimizer for hidden layers")."""

BETAS = (0.9, 0.95)
"""Betas of AdamW, as in every published training of a drafter that states them (EAGLE, SpecForge, Automodel)."""


def trained_parameters(student: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name. Raise UnsupportedModelError if there are none, or any is not float32."""
    found = {name: parameter for name, parameter in student.named_parameters() if parameter.requires_grad}
    if not found:
        raise UnsupportedModelError(
            f"{type(student).__name__}: received no parameter that has gradients, expected some to train",
            hint="train a drafter that has weights of its own",
        )
    for name, parameter in found.items():
        if parameter.dtype != torch.float32:
            raise UnsupportedModelError(
                f"{type(student).__name__}: {name} is {parameter.dtype}, expected float32 for weights that are trained",
                hint="load the drafter in float32; precision: bfloat16 is that of activations",
            )
    return found


@dataclass(frozen=True)
class Optimizers:
    """Optimizers by name, each with its peak learning rate. names: names of the parameters that each one trains;
    parameters are identified by name, because FSDP replaces their objects."""

    student: nn.Module
    schedule: SchedulePlan
    by_name: Mapping[str, tuple[Optimizer, float]]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, student: nn.Module, schedule: SchedulePlan) -> "Optimizers":
        """Create the optimizers of the trained parameters. Vectors, which are gains and offsets, have no decay."""
        parameters = trained_parameters(student)
        matrices = _matrices(student, parameters) if schedule.matrix_rate is not None else ()
        others = [name for name in parameters if name not in matrices]
        found: dict[str, tuple[Optimizer, float]] = {}
        names: dict[str, tuple[str, ...]] = {}
        if schedule.matrix_rate is not None and matrices:
            chosen = [parameters[name] for name in matrices]
            muon = Muon(chosen, weight_decay=schedule.weight_decay, adjust_lr_fn="match_rms_adamw")
            found["muon"], names["muon"] = (muon, schedule.matrix_rate), tuple(matrices)
        if others:
            groups = [
                {"params": [parameters[name] for name in others if (parameters[name].ndim > 1) is decays],
                 "weight_decay": schedule.weight_decay if decays else 0.0}
                for decays in (True, False)
            ]  # fmt: skip
            adamw = AdamW([group for group in groups if group["params"]], betas=BETAS)
            found["adamw"], names["adamw"] = (adamw, schedule.learning_rate), tuple(others)
        return cls(student, schedule, found, names)

    @property
    def all(self) -> list[Optimizer]:
        return [optimizer for optimizer, _ in self.by_name.values()]

    def set_rates(self, step: int, used: float) -> float:
        """Set the learning rates of a step (from 0 on); return their share of the peak. used: budget share, 0 to 1."""
        share = rate_share(step, used, self.schedule.warmup, self.schedule.final)
        for optimizer, highest in self.by_name.values():
            for group in optimizer.param_groups:
                group["lr"] = highest * share
        return share

    def step(self) -> None:
        """Update the weights and clear the gradients."""
        for optimizer in self.all:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Return the unsharded optimizer state, by "optimizer/key/parameter". All processes call this."""
        return {f"{name}/{key}/{of}": whole_tensor(value) for name, of, key, value in self._kept()}

    def load(self, stored: Mapping[str, Tensor]) -> None:
        """Restore a state for parameters of the same names and shapes. Raise CheckpointError if names differ."""
        parameters = dict(self.student.named_parameters())
        places = {of: name for name, trained in self.names.items() for of in trained}
        for path, value in stored.items():
            name, key, of = path.split("/", 2)
            if places.get(of) != name:
                raise CheckpointError(
                    f"the checkpoint has {key} of {name} for {of}, which {places.get(of, 'nothing')} trains",
                    hint="train anew, in another work folder",
                )
            parameter = parameters[of]
            alike = value.ndim > 0 and parameter.shape == value.shape
            self.by_name[name][0].state[parameter][key] = put(value, parameter) if alike else value.clone()

    def _kept(self) -> Iterator[tuple[str, str, str, Tensor]]:
        parameters = dict(self.student.named_parameters())
        for name, (optimizer, _) in self.by_name.items():
            for of in self.names[name]:
                states: dict[str, Any] = optimizer.state.get(parameters[of], {})
                for key, value in states.items():
                    yield name, of, key, value


def rate_share(step: int, used: float, warmup: int, final: float) -> float:
    """Return the rate's share of its peak: linear warmup over `warmup` steps, times a half cosine from 1 to `final`
    over the budget (Loshchilov and Hutter 2017, SGDR, without restarts). used: used share of the budget."""
    rising = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return rising * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(used, 1.0))))


def state_bytes(student: nn.Module, schedule: SchedulePlan) -> int:
    """Return the bytes of optimizer state: two numbers per trained parameter in AdamW, one in Muon."""
    parameters = trained_parameters(student)
    matrices = _matrices(student, parameters) if schedule.matrix_rate is not None else ()
    return sum((1 if name in matrices else 2) * p.numel() * p.element_size() for name, p in parameters.items())


def _matrices(student: nn.Module, parameters: Mapping[str, nn.Parameter]) -> list[str]:
    """Return the names of the matrices that Muon trains: all except embeddings, weights tied to them, and heads."""
    over_tokens = {id(module.weight) for module in student.modules() if isinstance(module, nn.Embedding)}
    for module in student.modules():
        head = getattr(module, "get_output_embeddings", lambda: None)()
        over_tokens |= {id(weight) for weight in (head.parameters() if head is not None else ())}
    return [
        name
        for name, parameter in parameters.items()
        if parameter.ndim == 2 and id(parameter) not in over_tokens and not any(word in name for word in OVER_TOKENS)
    ]
