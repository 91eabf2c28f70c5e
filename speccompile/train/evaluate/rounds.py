"""Rounds over what the target writes by itself, counted as the compiled loop counts them.

The first new token comes with the prompt. A round begins at a bonus token, accepts the drafts that are the text's
tokens, up to the first that is not, and gives one token more. `max_new_tokens`, a full buffer and an end-of-sequence
token cut the last round, as in `runtime.generation.Row`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.progress import progress_counter
from speccompile.train.evaluate.drafted import device_of, draft, inference_mode, read
from speccompile.train.teacher import Teacher

BATCH = 8
"""Answers that are read side by side."""


@dataclass(frozen=True)
class Answer:
    """A prompt and the target's greedy continuation, an end-of-sequence token, if one came, the last."""

    prompt: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True)
class SimulatedDecoding:
    """Prompts that were continued, in rounds that were simulated or run.

    shape: of the drafts, for people. answers: what was decoded. given: of every prompt, how many new tokens each round
    gave, what the end cut off left out; empty where the first new token was the last.
    """

    shape: str
    answers: tuple[Answer, ...]
    given: tuple[tuple[int, ...], ...]

    @property
    def rounds(self) -> int:
        return sum(map(len, self.given))

    @property
    def new_tokens(self) -> int:
        """Those that rounds gave: without the first of every prompt."""
        return sum(map(sum, self.given))

    @property
    def mean_accepted(self) -> float | None:
        """New tokens a round, the bonus token included; None without a round."""
        return self.new_tokens / self.rounds if self.rounds else None


@torch.no_grad()
def answer(
    model: nn.Module, prompts: Iterable[Sequence[int]], max_new_tokens: int, ends: Sequence[int], capacity: int
) -> list[Answer]:
    """What the target, a causal language model of transformers, writes behind prompts: its best token each time.

    One at a time, so that no padding moves a logit. ends: its end-of-sequence tokens; capacity: the most tokens, prompt
    and new together, that a bundle holds. Whatever the model's own generation config sets beside that is left out, as
    the compiled loop does.
    """
    prompts, answers = list(prompts), []
    with progress_counter("decoding with the target", len(prompts), "prompts") as advance:
        for prompt in prompts:
            room = min(max_new_tokens, capacity - len(prompt))
            answers.append(Answer(tuple(prompt), tuple(_continue(model, prompt, room, ends) if room > 0 else ())))
            advance(1)
    return answers


def _continue(model: nn.Module, prompt: Sequence[int], room: int, ends: Sequence[int]) -> list[int]:
    """Up to `room` tokens, which is one or more."""
    tokens = torch.tensor([list(prompt)], device=device_of(model))
    config = GenerationConfig(
        max_new_tokens=room, do_sample=False, num_beams=1, eos_token_id=list(ends) or None, pad_token_id=0
    )
    with patched_attribute(
        model, "generation_config", GenerationConfig()
    ):  # what it has beside ours would be taken as well
        text = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
    return text[0, len(prompt) :].tolist()


def simulate_rounds(
    learner: TrainableDrafter, teacher: Teacher, answers: Sequence[Answer], tokens: int
) -> SimulatedDecoding:
    """Rounds of a chain of `tokens` drafts over what the target wrote: what the compiled loop accepts, but for float
    noise between tokens whose logits are all but equal."""
    given: dict[int, tuple[int, ...]] = {}
    order = sorted(range(len(answers)), key=lambda number: len(answers[number].prompt) + len(answers[number].new))
    with inference_mode(learner):
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            found = _accepted(learner, teacher, [answers[number] for number in numbers], tokens)
            for number, accepted in zip(numbers, found, strict=True):
                given[number] = split_into_rounds(accepted, len(answers[number].new))
    return SimulatedDecoding(
        f"chain of {tokens}", tuple(answers), tuple(given[number] for number in range(len(answers)))
    )


def split_into_rounds(accepted: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    """How many new tokens each round gives. accepted: drafts in a row that are the text's behind every new token but
    the last; new_tokens: of the whole text."""
    given: list[int] = []
    place = 0
    while place < new_tokens - 1:
        given.append(min(accepted[place] + 1, new_tokens - 1 - place))
        place += given[-1]
    return tuple(given)


def cut(given: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    """Rounds that gave so many tokens each, without what they gave behind the first `new_tokens` of the text."""
    left, found = new_tokens - 1, list[int]()
    for each in given:
        if left <= 0:
            break
        found.append(min(each, left))
        left -= found[-1]
    return tuple(found)


def texts_of(answers: Sequence[Answer]) -> tuple[Tensor, Tensor, Tensor]:
    """tokens int64 [B, T], padded with zeros; real and learnt bool [B, T]: all of a text, and its new tokens."""
    rows = [torch.tensor(each.prompt + each.new) for each in answers]
    tokens, lengths = pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])[:, None]
    prompts, places = torch.tensor([len(each.prompt) for each in answers])[:, None], torch.arange(tokens.shape[1])
    real = places < lengths
    return tokens, real, real & (places >= prompts)


def _accepted(learner: TrainableDrafter, teacher: Teacher, answers: Sequence[Answer], depth: int) -> list[list[int]]:
    """Of every answer, drafts in a row that are the text's, behind each of its new tokens but the last."""
    if all(len(each.new) < 2 for each in answers):  # no round
        return [[] for _ in answers]
    seen = read(teacher, learner, *texts_of(answers))
    drafted = draft(learner, seen, depth, min(len(each.prompt) for each in answers))
    behind = seen.tokens.new_full((seen.tokens.shape[0], depth), -1)  # no draft is right behind the end
    tokens = torch.cat([seen.tokens.masked_fill(~seen.attention_mask, -1), behind], 1).unfold(1, depth, 1)
    first, count = drafted.first, drafted.best.shape[1]
    right = drafted.best == tokens[:, first + 1 : first + 1 + count]
    runs = right.long().cumprod(2).sum(2).tolist()
    starts = [len(each.prompt) - first for each in answers]
    return [
        run[start : start + max(len(each.new) - 1, 0)] for run, start, each in zip(runs, starts, answers, strict=True)
    ]
