"""Requests, responses, and the protocol of generators."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from speccompile.plan.training_plan import TrainingPlan

STOP, LENGTH = "stop", "length"


@dataclass(frozen=True)
class GenerationRequest:
    """Request for one response. number: index of the prompt. max_new_tokens: maximum number of new tokens, at least 1.
    temperature: 0 for greedy decoding. seed: of its random numbers, below 2**31, which every server accepts."""

    number: int
    tokens: list[int]
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Response:
    """Response of the target. tokens: new tokens; an end-of-sequence token, if any, is the last. finish: "stop" with
    such a token, else "length"."""

    tokens: list[int]
    finish: str


@dataclass(frozen=True)
class FailedResponse:
    """Reason of a missing response."""

    why: str


class TargetGenerator(Protocol):
    """Generator of the target's responses. words: its name in messages."""

    words: str

    def answer(self, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        """Return the responses to a group of one temperature, in its order. Equal groups get equal responses.

        Raise errors that concern all prompts; a resumed run requests this group again.
        """


def capacity(plan: TrainingPlan) -> int:
    """Return the maximum number of tokens of a prompt and its response; a longer sample would be cut."""
    return min(plan.max_length, plan.data.length)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a prompt, below 2**31: a hash, so that seeds of near numbers are unrelated."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "little") >> 1


def temperature_of(plan: TrainingPlan, number: int) -> float:
    """Return the temperature of a prompt's response. Seed and number decide whether it is sampled."""
    share = seed_of(plan.seed, number) / 2**31
    return plan.data.temperature if share < plan.data.sampled else 0.0


def ended(tokens: Sequence[int], max_new_tokens: int, ends: Sequence[int]) -> Response:
    """Return a response: the generated tokens up to the first end token, at most `max_new_tokens`."""
    said = list(tokens[:max_new_tokens])
    end = next((place for place, token in enumerate(said) if token in ends), None)
    return Response(said, LENGTH) if end is None else Response(said[: end + 1], STOP)
