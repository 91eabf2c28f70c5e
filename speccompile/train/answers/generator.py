"""What is asked, what is answered, and the protocol of those who answer."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from speccompile.plan.training_plan import TrainingPlan

STOP, LENGTH = "stop", "length"


class Prompt(NamedTuple):
    """document: what it was taken from, a number or a text. tokens: ids of the target's vocabulary."""

    document: int | str
    tokens: Sequence[int]


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt as a maker gets it. number: among all prompts. room: the most tokens of its answer, at least one.
    temperature: 0 for the most likely tokens. seed: of what is drawn for it, below 2**31, which every server takes."""

    number: int
    tokens: list[int]
    room: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Response:
    """tokens: new ones only; an end-of-sequence token, if one came, is the last. finish: "stop" where one came, else
    "length"."""

    tokens: list[int]
    finish: str


@dataclass(frozen=True)
class FailedResponse:
    """No answer, and why."""

    why: str


class TargetGenerator(Protocol):
    """Who answers. `words` says who, for people."""

    words: str

    def answer(self, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        """The answers to a group of one temperature, in its order. The same group always gets the same answers.

        Raises what concerns all prompts: a run that goes on later asks for this group again.
        """


def capacity(plan: TrainingPlan) -> int:
    """The most tokens of a prompt and its answer: beyond the length of a text, it would be cut."""
    return min(plan.max_length, plan.data.length)


def seed_of(seed: int, number: int) -> int:
    """The seed of a prompt by its number, below 2**31: near numbers get seeds far apart."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "little") >> 1


def temperature_of(plan: TrainingPlan, number: int) -> float:
    """Of the answer to a prompt: which ones are drawn, seed and number say."""
    share = seed_of(plan.seed, number) / 2**31
    return plan.data.temperature if share < plan.data.sampled else 0.0


def ended(tokens: Sequence[int], room: int, ends: Sequence[int]) -> Response:
    """An answer out of what a model said: up to the first token that ends a text, and never more than `room`."""
    said = list(tokens[:room])
    end = next((place for place, token in enumerate(said) if token in ends), None)
    return Response(said, LENGTH) if end is None else Response(said[: end + 1], STOP)
