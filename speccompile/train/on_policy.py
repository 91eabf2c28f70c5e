"""On-policy data: continuations that the drafter samples and the target labels.

On-policy distillation as in DistillSpec (Zhou et al. 2024), Online Speculative Decoding (Liu et al. 2024) and GKD
(Agarwal et al. 2024).
"""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.drafters.model.training import ModelStudent
from speccompile.plan.training_plan import LossPlan


def is_on_policy_step(plan: LossPlan, seed: int, step: int) -> bool:
    """Return whether a step trains on the drafter's continuations; equal for all parts of the step."""
    if plan.contexts == "mixed":
        return bool(np.random.default_rng((seed, step)).random() < plan.share)
    return plan.contexts == "drafter"


@torch.no_grad()
def sample_on_policy(
    student: ModelStudent, tokens: Tensor, real: Tensor, learnt: Tensor, ends: Sequence[int], seed: int, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace the text after each prompt by the drafter's continuation, sampled at temperature 1.

    A prompt is the text before the first token of the loss mask, or at least the first token. tokens int64 [B, T];
    attention mask and loss mask bool [B, T], padding on the right; ends: tokens that end a text. Return the same three.
    No text becomes longer, the loss mask covers the drafter's tokens, and a text without continuation is unchanged.
    Random numbers are functions of seed, step and the prompt, not of the split of a batch.
    """
    places, lengths = torch.arange(tokens.shape[1], device=tokens.device), real.sum(1)
    first = torch.where(learnt & real, places, tokens.shape[1]).amin(1)
    prompts = torch.minimum(first.clamp(min=1), lengths)
    max_new_tokens, width = int((lengths - prompts).max()), int(prompts.max())
    if not max_new_tokens:
        return tokens, real, torch.zeros_like(learnt)
    said = _continued(student, tokens, prompts, width, max_new_tokens, ends, seed, step)
    shifts = width - prompts[:, None]  # prompts are padded on the left
    written = said.gather(1, (places + shifts).clamp(max=said.shape[1] - 1))
    is_prompt = places < prompts[:, None]
    is_own = ~is_prompt & (places < lengths[:, None])
    is_end = torch.isin(written, written.new_tensor(list(ends))) & is_own
    is_own &= is_end.cumsum(1) - is_end.long() == 0  # the loss mask includes the end token
    return torch.where(is_prompt, tokens, torch.where(is_own, written, 0)), is_prompt | is_own, is_own


def _continued(
    student: ModelStudent,
    tokens: Tensor,
    prompts: Tensor,
    width: int,
    max_new_tokens: int,
    ends: Sequence[int],
    seed: int,
    step: int,
) -> Tensor:
    """Return [B, width + n]: the prompts, padded on the left, and up to `max_new_tokens` new tokens."""
    index = torch.arange(width, device=tokens.device) - (width - prompts[:, None])
    is_read, read = index >= 0, tokens.gather(1, index.clamp(min=0))
    randoms = [
        np.random.default_rng((seed, step, zlib.crc32(row[mask].tobytes())))
        for row, mask in zip(read.cpu().numpy(), is_read.cpu().numpy(), strict=True)
    ]
    network, was_training = student.network, student.network.training
    network.eval()
    with patched_attribute(network, "generation_config", GenerationConfig()):  # the model's config may force tokens
        said = network.generate(
            read.clamp(max=student.rows - 1), attention_mask=is_read.long(),
            logits_processor=LogitsProcessorList([_Sampled(randoms, student.size)]),
            max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=list(ends) or None, pad_token_id=0,
        )  # fmt: skip
    network.train(was_training)
    return said


class _Sampled(LogitsProcessor):
    """Gumbel noise, with which the argmax of the logits is a sample. Each sequence has a separate generator, and its
    samples do not depend on other sequences."""

    def __init__(self, randoms: Sequence[np.random.Generator], size: int) -> None:
        """size: number of tokens that the target has."""
        self.randoms, self.size = randoms, size

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        noise = torch.from_numpy(np.stack([random.gumbel(size=scores.shape[1]) for random in self.randoms]))
        drawn = scores + noise.to(scores.device, scores.dtype)
        drawn[:, self.size :] = -torch.inf
        return drawn
