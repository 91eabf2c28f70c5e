"""Responses by transformers' `generate`, for targets that the builder refuses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

from speccompile.compiler.models.load import first_line, quiet_transformers
from speccompile.errors import CheckpointError
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import LOGGER, log_step
from speccompile.train.answers.generator import FailedResponse, GenerationRequest, Response, capacity, ended

PADDED, PROBED, NOISE = 5, 4, 1e-3
"""Test of padding: number of pads before a prompt, number of new tokens compared, and the tolerated change of a logit,
relative to the standard deviation of the logits."""


@contextmanager
def transformers_maker(plan: TrainingPlan) -> Iterator["TransformersMaker"]:
    """Load the target: in float32 on the CPU; else over all GPUs, in the precision of `train.schedule`. Raise
    CheckpointError if transformers cannot load it."""
    with log_step("loading the target"):
        model = _load(plan.target.folder, plan.schedule.precision)
    yield TransformersMaker(model, plan)


class TransformersMaker:
    """Generator that pads groups on the left if padding does not change logits; else it batches equal lengths only."""

    words = "transformers"

    def __init__(self, model: PreTrainedModel, plan: TrainingPlan) -> None:
        self._model, self._plan = model, plan
        self._ends = plan.target.facts.eos_token_ids
        self._pad = self._ends[0] if self._ends else 0
        self._pads_freely: bool | None = None
        # Neither the compiled loop nor the teacher applies a checkpoint's recommended temperature or penalties.
        model.generation_config = GenerationConfig()

    def answer(self, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        if self._pads_freely is None and len({len(asked.tokens) for asked in group}) > 1:
            self._pads_freely = self._try_padding(group[0].tokens)
            if not self._pads_freely:
                LOGGER.info("padding changes what this model says: prompts of one length alone are answered together")
        found: dict[int, Response | FailedResponse] = {}
        for _, run in groupby(sorted(group, key=self._run), self._run):
            found |= self._generate(list(run))
        return [found[asked.number] for asked in group]

    def _run(self, request: GenerationRequest) -> int:
        """Return the key of a padded batch: 0, or the length if padding is unsafe or could exceed the capacity."""
        is_cut = request.max_new_tokens < self._plan.data.max_new_tokens
        return len(request.tokens) if is_cut or self._pads_freely is False else 0

    def _generate(self, run: list[GenerationRequest]) -> dict[int, Response | FailedResponse]:
        ids, mask = self._padded([asked.tokens for asked in run])
        drawing = [_Drawing(warm, [asked.seed for asked in run])] if (warm := run[0].temperature) else []
        said = self._say(
            ids, mask, max(asked.max_new_tokens for asked in run), logits_processor=LogitsProcessorList(drawing)
        )
        rows = said[:, ids.shape[1] :].tolist()
        return {
            asked.number: ended(row, asked.max_new_tokens, self._ends) for asked, row in zip(run, rows, strict=True)
        }

    def _say(self, ids: Tensor, mask: Tensor, tokens: int, **options: Any) -> Any:
        config = GenerationConfig(
            do_sample=False, max_new_tokens=tokens, eos_token_id=list(self._ends) or None, pad_token_id=self._pad
        )
        return self._model.generate(ids, attention_mask=mask, generation_config=config, **options)

    def _padded(self, prompts: Sequence[Sequence[int]], pads: int = 0) -> tuple[Tensor, Tensor]:
        """Return ids and mask int64 [B, T], padded on the left, with `pads` additional pads."""
        width = max(map(len, prompts)) + pads
        ids = torch.full((len(prompts), width), self._pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :], mask[row, width - len(prompt) :] = torch.tensor(prompt), 1
        return ids.to(self._model.device), mask.to(self._model.device)

    def _try_padding(self, prompt: list[int]) -> bool:
        """Return whether `generate` gives a prompt the same logits with padding on the left."""
        room = capacity(self._plan) - PADDED - PROBED
        if room < 1:
            return False
        options = {"output_logits": True, "return_dict_in_generate": True}
        plain, padded = (
            torch.stack(self._say(*self._padded([prompt[:room]], pads), PROBED, **options).logits).float()
            for pads in (0, PADDED)
        )
        if plain.shape != padded.shape:
            return False
        return bool((plain - padded).abs().max() <= NOISE * plain.std())


class _Drawing(LogitsProcessor):
    """Gumbel noise: the argmax of logits / temperature plus noise is a sample of the distribution (Gumbel 1954). Each
    sequence has a separate generator, so that its samples do not depend on other sequences."""

    def __init__(self, temperature: float, seeds: Sequence[int]) -> None:
        self._temperature = temperature
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Add noise to scores [B, V]."""
        noise = torch.stack([torch.empty(scores.shape[1]).exponential_(generator=each) for each in self._generators])
        return scores.float() / self._temperature - noise.to(scores.device).log()


def _load(folder: Path, precision: str) -> PreTrainedModel:
    quiet_transformers()
    on_gpu = torch.cuda.is_available()
    placed: dict[str, Any] = {"device_map": "auto"} if on_gpu else {}
    dtype = getattr(torch, precision) if on_gpu else torch.float32
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True, **placed
        )
    except (ImportError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: transformers does not load the target: {first_line(error)}",
            hint="check the checkpoint's files, or set train.data.answers to bundle or endpoint",
        ) from error
    model.eval()
    return model
