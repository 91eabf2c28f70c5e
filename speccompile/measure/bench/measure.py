"""Benchmark runs: both decoding modes answer a prompt one right after the other, so that other load affects both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from speccompile.bundle.prompts import PLAIN, Question
from speccompile.errors import PromptError, UsageError
from speccompile.measure.bench.conversation import ConversationPrompts
from speccompile.measure.bench.timed import Timed, generate_timed
from speccompile.progress import log_step
from speccompile.runtime import Bundle, Generation, first_difference
from speccompile.runtime.generation import token_at
from speccompile.runtime.text.prompts import ChatTemplate, Prompt

Answers = tuple[Timed, ...]
"""Answers of one question, one per turn."""


@dataclass(frozen=True)
class Divergence:
    """First new token at which the two modes differ. A mode that has already ended has None."""

    prompt: int
    turn: int
    index: int
    speculative: int | None
    autoregressive: int | None


@dataclass(frozen=True)
class PromptRuns:
    """One prompt or question, counted from 1, and its answers per repeat. `speculative` is empty without a drafter.

    group: the group of its results, see `Question.group`.
    """

    number: int
    speculative: tuple[Answers, ...]
    autoregressive: tuple[Answers, ...]
    group: str = PLAIN

    def difference(self) -> Divergence | None:
        """Return the first divergence of the tokens of the two modes, or None."""
        for ours, theirs in zip(self.speculative, self.autoregressive, strict=bool(self.speculative)):
            for turn, pair in enumerate(zip(ours, theirs, strict=True), 1):
                a, b = (timed.generation.token_ids for timed in pair)
                if (index := first_difference(a, b)) is not None:
                    return Divergence(self.number, turn, index, token_at(a, index), token_at(b, index))
        return None


def measure(
    bundle: Bundle,
    prompts: Sequence[Prompt | Question],
    *,
    max_new_tokens: int = 128,
    repeats: int = 3,
    chat: ChatTemplate | None = None,
    baseline: Bundle | None = None,
    first_run: int = 0,
    learning: bool = False,
    go_on: Callable[[Sequence[PromptRuns]], bool] = lambda _: True,
    **options: Any,
) -> list[PromptRuns]:
    """Generate for every prompt, `repeats` times in both decoding modes, in alternating order, after a warm-up.

    A bundle without a drafter runs autoregressively only. chat: template for the turns of questions; plain text by
    default. Each mode continues its own answers. baseline: bundle of the same target that decodes autoregressively; by
    default `bundle`. first_run: number of earlier runs, which decides the order of the modes. go_on: called after each
    prompt with the runs so far; False leaves out the other prompts. options: further options of
    `Bundle.generate_batch`, equal for every generation.

    The persistent drafter state is reset before every question. With `learning` it is reset before the first question
    only, as in use. `learning` needs a single repeat: a second one would draft from the answers of the first.

    Raise PromptError with the numbers of prompts that the bundle cannot take, and UsageError if `repeats` is below 1;
    both before any work.
    """
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}: expected at least 1")
    questions = [each if isinstance(each, Question) else _question(each) for each in prompts]
    writer = ConversationPrompts(bundle, chat, max_new_tokens)
    options = {"max_new_tokens": max_new_tokens} | options
    runs = _Runs(bundle, baseline or bundle, writer, options, learning=learning)
    runs.check(questions)
    with log_step("warm-up"):
        runs.both(questions[0], 1)
        bundle.reset()
    cases: list[PromptRuns] = []
    for number, question in enumerate(questions, 1):
        with log_step(f"prompt {number} of {len(questions)}"):
            pairs = [runs.both(question, number, run=number + first_run + repeat) for repeat in range(repeats)]
        ours, theirs = (tuple(pair[way] for pair in pairs if way in pair) for way in (False, True))
        cases.append(PromptRuns(number, ours, theirs, question.group))
        if not go_on(cases):
            break
    return cases


def generations(answers: Sequence[Answers]) -> Iterator[Generation]:
    """Yield the generations of these repeats."""
    return (timed.generation for turns in answers for timed in turns)


def host_seconds(generation: Generation) -> float:
    """Return the seconds that a generation's rounds spent outside their graphs."""
    spent = generation.prefill_seconds + generation.verify_seconds + generation.draft_seconds
    return generation.seconds - spent


class _Runs:
    def __init__(
        self, bundle: Bundle, baseline: Bundle, writer: ConversationPrompts, options: dict[str, Any], *, learning: bool
    ) -> None:
        self._bundles, self._writer, self._options = {False: bundle, True: baseline}, writer, options
        self._learning = learning
        self._ways = [False, True] if bundle.speculative else [True]

    def check(self, questions: Sequence[Question]) -> None:
        """Raise PromptError for questions that the bundle cannot take."""
        refused: dict[int, PromptError] = {}
        for number, question in enumerate(questions, 1):
            try:
                self._writer.check(question)
            except PromptError as error:
                refused[number] = error
        if refused:
            number, first = next(iter(refused.items()))
            others = f"; also refused: {', '.join(map(str, list(refused)[1:]))}" if len(refused) > 1 else ""
            raise PromptError(f"prompt {number}: {first}{others}", hint=first.hint)

    def both(self, question: Question, number: int, run: int = 0) -> dict[bool, Answers]:
        """Return the answers by mode: False is speculative, True autoregressive. Odd runs reverse the order."""
        ordered = self._ways[::-1] if run % 2 else self._ways
        return {way: self._answers(question, number, way) for way in ordered}

    def _answers(self, question: Question, number: int, autoregressive: bool) -> Answers:
        if not self._learning:
            self._bundles[False].reset()  # persistent drafter state would hold this very answer from an earlier repeat
        answers: list[Timed] = []
        for turn in range(len(question.turns)):
            try:
                ids = self._writer.token_ids(question, [str(given.generation.text) for given in answers])
            except PromptError as error:  # an answer's text may encode to more tokens than it was generated with
                raise PromptError(f"prompt {number}, turn {turn + 1}: {error}", hint=error.hint) from error
            options = self._options | self._writer.options(question)
            answers.append(generate_timed(self._bundles[autoregressive], ids, autoregressive=autoregressive, **options))
        return tuple(answers)


def _question(prompt: Prompt) -> Question:
    return Question((prompt if isinstance(prompt, str) else list(prompt),))
