"""Simulated rounds over the target's own continuations, counted like the compiled loop.

The prefill gives the first new token. A round begins at a bonus token, accepts drafts until the first one that is not
the text's token, and gives one token more. `max_new_tokens`, a full buffer and an end-of-sequence token cut the last
round, as in `runtime.generation.SequenceState`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from speccompile.compiler.models.sourced import SourcedModel
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.progress import progress_counter
from speccompile.train.data.sounds import Sounds
from speccompile.train.evaluate.drafted import device_of, draft, inference_mode, read
from speccompile.train.teacher import Teacher

BATCH = 8
"""Number of responses per batch."""


@dataclass(frozen=True)
class Answer:
    """Prompt and the target's greedy continuation; an end-of-sequence token, if any, is the last."""

    prompt: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedDecoding:
    """Decoded prompts, in simulated or real rounds.

    shape: shape of the drafts, as text. answers: prompts and continuations. tokens_per_round: for every prompt the
    number of new tokens of each round, cut at the end; empty if the first new token was the last.
    """

    shape: str
    answers: tuple[Answer, ...]
    tokens_per_round: tuple[tuple[int, ...], ...]

    @property
    def rounds(self) -> int:
        return sum(map(len, self.tokens_per_round))

    @property
    def new_tokens(self) -> int:
        """Number of tokens from rounds: without the first of every prompt."""
        return sum(map(sum, self.tokens_per_round))

    @property
    def mean_accepted(self) -> float | None:
        """Return new tokens per round, bonus token included; None without a round."""
        return self.new_tokens / self.rounds if self.rounds else None


@torch.no_grad()
def answer(
    model: nn.Module, prompts: Iterable[Sequence[int]], max_new_tokens: int, ends: Sequence[int], capacity: int,
    start: Sequence[int] = (), sounds: Sounds | None = None,
) -> list[Answer]:  # fmt: skip
    """Return greedy continuations of the prompts by the target, a language model of transformers, or its answers,
    which begin with `start`, if its encoder reads the prompts; `sounds` are those of a target that hears.

    Prompts are not batched: padding would change logits. ends: end-of-sequence tokens; capacity: maximum number of
    tokens of a bundle, prompt and new tokens together. The model's generation config is ignored, as in the compiled
    loop.
    """
    prompts, answers = list(prompts), []
    with progress_counter("decoding with the target", len(prompts), "prompts") as advance:
        for prompt in prompts:
            begin = start if sounds is None else sounds.start(prompt)
            limit = max(min(max_new_tokens, capacity - len(begin or prompt)), 0)
            if isinstance(model, SourcedModel):
                new = model.answer(prompt if sounds is None else sounds.hear([prompt])[0], begin, limit, ends)
            else:
                new = _continue(model, prompt, limit, ends) if limit else []
            answers.append(Answer(tuple(prompt), tuple(new)))
            advance(1)
    return answers


def _continue(model: nn.Module, prompt: Sequence[int], limit: int, ends: Sequence[int]) -> list[int]:
    """Return up to `limit` new tokens; `limit` is at least 1."""
    tokens = torch.tensor([list(prompt)], device=device_of(model))
    config = GenerationConfig(
        max_new_tokens=limit, do_sample=False, num_beams=1, eos_token_id=list(ends) or None, pad_token_id=0
    )
    with patched_attribute(
        model, "generation_config", GenerationConfig()
    ):  # `generate` would merge the model's own config into ours
        text = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
    return text[0, len(prompt) :].tolist()


def simulate_rounds(
    student: TrainableDrafter, teacher: Teacher, answers: Sequence[Answer], tokens: int
) -> SimulatedDecoding:
    """Simulate rounds of a chain of `tokens` drafts over the target's text. They equal the compiled loop's rounds,
    except for float noise at near ties."""
    tokens_per_round: dict[int, tuple[int, ...]] = {}
    order = sorted(range(len(answers)), key=lambda number: len(answers[number].prompt) + len(answers[number].new))
    with inference_mode(student):
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            found = _accepted(student, teacher, [answers[number] for number in numbers], tokens)
            for number, accepted in zip(numbers, found, strict=True):
                tokens_per_round[number] = split_into_rounds(accepted, len(answers[number].new))
    return SimulatedDecoding(
        f"chain of {tokens}", tuple(answers), tuple(tokens_per_round[number] for number in range(len(answers)))
    )


def split_into_rounds(accepted: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    """Return the number of new tokens of each round. accepted: for every new token but the last, the number of
    consecutive correct drafts after it. new_tokens: number of new tokens of the text."""
    tokens_per_round: list[int] = []
    index = 0
    while index < new_tokens - 1:
        tokens_per_round.append(min(accepted[index] + 1, new_tokens - 1 - index))
        index += tokens_per_round[-1]
    return tuple(tokens_per_round)


def cut(tokens_per_round: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    """Cut the tokens per round to the first `new_tokens` new tokens of the text."""
    left, found = new_tokens - 1, list[int]()
    for each in tokens_per_round:
        if left <= 0:
            break
        found.append(min(each, left))
        left -= found[-1]
    return tuple(found)


def texts_of(answers: Sequence[Answer]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens int64 [B, T], padded with zeros; attention mask and loss mask (the new tokens), bool [B, T]."""
    rows = [torch.tensor(each.prompt + each.new) for each in answers]
    tokens, lengths = pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])[:, None]
    prompts, indices = torch.tensor([len(each.prompt) for each in answers])[:, None], torch.arange(tokens.shape[1])
    real = indices < lengths
    return tokens, real, real & (indices >= prompts)


def _accepted(student: TrainableDrafter, teacher: Teacher, answers: Sequence[Answer], depth: int) -> list[list[int]]:
    """Return, per response and new token except the last, the number of consecutive correct drafts after it."""
    if all(len(each.new) < 2 for each in answers):  # no round
        return [[] for _ in answers]
    seen = read(teacher, student, *texts_of(answers))
    prompts = [teacher.prompt_length(each.prompt) for each in answers]
    drafted = draft(student, seen, depth, min(prompts))
    behind = seen.tokens.new_full((seen.tokens.shape[0], depth), -1)  # no draft past the end is correct
    tokens = torch.cat([seen.tokens.masked_fill(~seen.attention_mask, -1), behind], 1).unfold(1, depth, 1)
    first, count = drafted.first, drafted.best.shape[1]
    right = drafted.best == tokens[:, first + 1 : first + 1 + count]
    runs = right.long().cumprod(2).sum(2).tolist()
    return [
        run[length - first : length - first + max(len(each.new) - 1, 0)]
        for run, length, each in zip(runs, prompts, answers, strict=True)
    ]
