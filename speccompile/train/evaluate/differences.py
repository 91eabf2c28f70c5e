"""First differences between simulated and compiled rounds, and whether float noise explains them."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from speccompile.compiler.prove.tolerance import TOLERANCE
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.runtime.generation import first_difference, token_at
from speccompile.train.evaluate.drafted import draft_logits, inference_mode, read
from speccompile.train.evaluate.rounds import SimulatedDecoding, cut, texts_of
from speccompile.train.teacher import Teacher


@dataclass(frozen=True)
class Difference:
    """First difference of a prompt; later ones are consequences.

    prompt, round: numbers from 0 on. index: the new token at which the sides differ. who: "target" if the texts differ
    there, or "drafter" if only one side accepted the draft of this token. margin: distance of torch's logits between
    the tokens of both sides; for a drafter, whose other token is not recorded, between its best token and the text's,
    or, if these are equal, the second best. noise: largest margin that rounding explains, see `prove.tolerance`, in the
    precision of the simulating target, whose features the drafter reads.
    """

    prompt: int
    round: int
    index: int
    who: str
    margin: float
    noise: float

    @property
    def is_near_tie(self) -> bool:
        return self.margin <= self.noise

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"near_tie": self.is_near_tie}


def differences(
    student: TrainableDrafter, teacher: Teacher, simulated: SimulatedDecoding, ran: SimulatedDecoding, tokens: int
) -> tuple[Difference, ...]:
    """Return the first difference of every prompt that has one. Both sides use chains of `tokens` drafts."""
    found = []
    with inference_mode(student):
        for number in range(len(simulated.answers)):
            one = _difference(student, teacher, simulated, ran, tokens, number)
            found += [] if one is None else [one]
    return tuple(found)


def _difference(
    student: TrainableDrafter,
    teacher: Teacher,
    simulated: SimulatedDecoding,
    ran: SimulatedDecoding,
    tokens: int,
    number: int,
) -> Difference | None:
    answer, other = simulated.answers[number], ran.answers[number]
    parted = first_difference(answer.new, other.new)
    common = len(answer.new) if parted is None else parted
    here, there = (cut(each.tokens_per_round[number], common) for each in (simulated, ran))
    where = first_difference(here, there)
    if parted is None and where is None:
        return None
    seen = read(teacher, student, *texts_of([answer]))
    start = teacher.prompt_length(answer.prompt)
    if where is not None:
        bonus = sum(here[:where])  # position of the round's bonus token among the new tokens
        accepted = min(here[where], there[where]) - 1
        logits, index = draft_logits(student, seen, start + bonus, tokens)[accepted], bonus + accepted + 1
        margin = _of_draft(student, logits, answer.new[index])
        return Difference(number, where, index, "drafter", margin, _noise(logits, teacher))
    assert parted is not None
    logits = seen.logits[0, start + parted - 1]
    margin = _between(logits, token_at(answer.new, parted), token_at(other.new, parted))
    return Difference(number, len(here), parted, "target", margin, _noise(logits, teacher))


def _of_draft(student: TrainableDrafter, logits: Tensor, token: int) -> float:
    """Return the margin between a draft's best token and the text's token, or the second best if these are equal."""
    kept = student.vocabulary
    column = token if kept is None else next(iter((kept == token).nonzero()[:, 0].tolist()), None)
    best, second = logits.topk(2).values.tolist()
    own = best if column is None else float(logits[column])
    return best - own if own < best else best - second


def _between(logits: Tensor, one: int | None, other: int | None) -> float:
    """Return the distance of two logits, or infinity if one text has ended: noise cannot explain that."""
    return float("inf") if one is None or other is None else abs(float(logits[one] - logits[other]))


def _noise(logits: Tensor, teacher: Teacher) -> float:
    dtypes = (parameter.dtype for parameter in teacher.model.parameters() if parameter.is_floating_point())
    words = (str(dtype).removeprefix("torch.") for dtype in dtypes)
    return TOLERANCE[next(filter(TOLERANCE.__contains__, words), "float32")] * max(float(logits.abs().max()), 1.0)
