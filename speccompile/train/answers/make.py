"""Generate a file of the target's responses to prompts; an interrupted run can resume."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.bundle.work_folders import locked_for
from speccompile.errors import BuildError, PromptError, SpeccompileError, UsageError
from speccompile.plan.plan import Plan
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import LOGGER, progress_counter
from speccompile.train.answers.generator import (
    FailedResponse,
    GenerationRequest,
    Response,
    TargetGenerator,
    capacity,
    seed_of,
    temperature_of,
)
from speccompile.train.answers.store import DONE, FAILED, KEY, SKIPPED, Store, account
from speccompile.train.data.documents import Prompt
from speccompile.train.data.sounds import Sounds

COMMAND, OPTION = "speccompile train", "--work"

BUNDLE = "bundle"

SHARE, FEW = 0.05, 64
"""A run stops when the failures exceed this share of all responses, or already this share of the responses so far and
64: a run need not wait long for an endpoint that is gone."""

BYTES = 6
"""Approximate bytes of a token in a line: five digits, or six in the largest vocabularies, and a comma."""


def make_answers(
    plan: TrainingPlan, prompts: Sequence[Prompt], folder: Path, *, bundle: Plan | None = None,
    sounds: Sounds | None = None,
) -> Path:  # fmt: skip
    """Generate the target's responses to `prompts` by `plan.data` and return `folder`/answers.jsonl: one line per
    prompt, in order. Responses of an interrupted run are reused.

    A line is {"document", "prompt_ids", "answer_ids", "finish": "stop" | "length"}, {"document", "failed": why} or
    {"document", "skipped": why}; skipped prompts are empty or leave no room for a response. done + failed + skipped
    equals the number of prompts, and stderr shows the three counts.

    bundle: plan to build instead of the target alone, for example with an existing drafter.
    sounds: of the prompts of a target that hears.

    Raise UsageError for a folder of other prompts, another target or other options; PromptError for tokens outside the
    target's vocabulary; BuildError if the disk has no room; SpeccompileError if too many responses fail; and the errors
    of the generator.
    """
    order, skipped = _sorted_out(plan, prompts)
    store, key = Store(folder), _key(plan, prompts)
    with locked_for(folder, KEY, key, work="answers", option=OPTION, command=COMMAND, begun=store.has_any):
        if store.whole.is_file():
            found = account(store.whole)
            LOGGER.info("answers: %s, made before", _said(found))
        else:
            store.read()
            size = bundle.batch_size if bundle and plan.data.answers == BUNDLE else plan.data.batch_size
            groups = [group for group in _groups(plan, order, size) if not all(map(store.has, group))]
            _check_room(plan, prompts, groups, folder)
            speed = ""
            if groups:
                with _maker(plan, folder, bundle, sounds) as maker:
                    speed = _Run(plan, prompts, store, maker, len(order)).make(groups)
            store.append(skipped)
            found = store.finish(len(prompts))
            LOGGER.info("answers: %s%s", _said(found), speed)
        shutil.rmtree(folder / BUNDLE, ignore_errors=True)  # the build cache can restore it
    if sum(found.values()) != len(prompts):
        raise BuildError(
            f"{store.whole}: received {_said(found)}, expected {len(prompts)} together",
            hint="remove the folder: the next run generates them again",
        )
    return store.whole


def _sorted_out(plan: TrainingPlan, prompts: Sequence[Prompt]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the numbers of prompts to answer, the longest first, and the lines of skipped prompts. Raise PromptError.

    With this order memory runs out at once or never, and the estimate of the remaining time is never too short."""
    lengths, skipped = dict[int, int](), []
    most, size, source = capacity(plan), plan.target.facts.vocabulary_size, plan.target.facts.source
    hears = source is not None and source.audio is not None  # whose prompts are numbers of sounds
    for number, (document, tokens) in enumerate(prompts):
        wrong = None if hears else next((token for token in tokens if not 0 <= token < size), None)
        if wrong is not None:
            raise PromptError(
                f"prompt {number} of document {document!r}: received token id {wrong}, expected ids below {size}, the "
                "size of the target's vocabulary",
                hint="tokenize the data with the target's own tokenizer",
            )
        if 0 < len(tokens) < most:
            lengths[number] = len(tokens)
        else:
            why = f"{len(tokens)} tokens, at most {most - 1} leave room for an answer" if len(tokens) else "no tokens"
            skipped.append({"number": number, "document": document, "skipped": why})
    if not lengths:
        received = f"none that can be answered: the first has {skipped[0]['skipped']}" if skipped else "expected some"
        raise PromptError(
            f"answers: received {len(prompts)} prompts, {received}",
            hint="check train.data.files; for longer prompts set train.data.length or cache.max_length higher",
        )
    return sorted(lengths, key=lambda number: (-lengths[number], number)), skipped


def _groups(plan: TrainingPlan, order: Sequence[int], size: int) -> list[list[int]]:
    """Split the numbers into groups of at most `size` and one temperature, in order."""
    alike: dict[float, list[int]] = {}
    for number in order:
        alike.setdefault(temperature_of(plan, number), []).append(number)
    return [numbers[start : start + size] for numbers in alike.values() for start in range(0, len(numbers), size)]


class _Run:
    """Run over unanswered groups. asked: number of prompts in all groups, answered ones included."""

    def __init__(
        self, plan: TrainingPlan, prompts: Sequence[Prompt], store: Store, maker: TargetGenerator, asked: int
    ) -> None:
        self._plan, self._prompts, self._store, self._maker = plan, prompts, store, maker
        self._most = SHARE * asked
        self._failed = self._done = self._tokens = 0

    def make(self, groups: Sequence[Sequence[int]]) -> str:
        """Generate all responses and return the speed as text. Raise SpeccompileError if too many fail."""
        start, seconds = time.perf_counter(), 0.0
        with progress_counter("answers", sum(map(len, groups)), "prompts") as advance:
            for group in groups:
                asked = list(map(self._asked, group))
                pairs = list(zip(asked, self._maker.answer(asked), strict=True))
                self._store.append(self._record(*pair) for pair in pairs)
                seconds = time.perf_counter() - start
                advance(len(group))
                self._count(pairs)
        return f"; {self._tokens} tokens by {self._maker.words}, {self._tokens / seconds:.0f} tokens/s"

    def _asked(self, number: int) -> GenerationRequest:
        tokens = list(map(int, self._prompts[number][1]))
        max_new_tokens = min(self._plan.data.max_new_tokens, capacity(self._plan) - len(tokens))
        return GenerationRequest(
            number, tokens, max_new_tokens, temperature_of(self._plan, number), seed_of(self._plan.seed, number)
        )

    def _record(self, request: GenerationRequest, answer: Response | FailedResponse) -> dict[str, Any]:
        record = {"number": request.number, "document": self._prompts[request.number][0]}
        if isinstance(answer, FailedResponse):
            return record | {"failed": answer.why}
        return record | {"prompt_ids": request.tokens, "answer_ids": answer.tokens, "finish": answer.finish}

    def _count(self, pairs: Sequence[tuple[GenerationRequest, Response | FailedResponse]]) -> None:
        reasons = [
            f"prompt {asked.number}: {answer.why}" for asked, answer in pairs if isinstance(answer, FailedResponse)
        ]
        for reason in reasons:
            LOGGER.warning("answers: %s", reason)
        self._failed += len(reasons)
        self._done += len(pairs) - len(reasons)
        self._tokens += sum(len(answer.tokens) for _, answer in pairs if isinstance(answer, Response))
        so_far = self._failed + self._done
        if self._failed > min(self._most, max(FEW, SHARE * so_far)):
            raise SpeccompileError(
                f"answers: {self._failed} of {so_far} failed, expected at most {SHARE:.0%}; the last, {reasons[-1]}",
                hint="mend that, and run the same command again: it goes on where it was, and asks these again",
            )


def _maker(
    plan: TrainingPlan, folder: Path, bundle: Plan | None, sounds: Sounds | None
) -> AbstractContextManager[TargetGenerator]:
    match plan.data.answers:
        case "bundle":
            from speccompile.train.answers.bundle_generator import answer_plan, bundle_maker

            decided = bundle or answer_plan(plan)
            return bundle_maker(plan, decided, folder / BUNDLE, sounds=sounds)
        case "transformers":
            from speccompile.train.answers.transformers_generator import transformers_maker

            return transformers_maker(plan)
        case "endpoint":
            from speccompile.train.answers.endpoint_generator import endpoint_maker

            return endpoint_maker(plan)
    raise UsageError(
        f"train.data.answers: received '{plan.data.answers}', expected bundle, transformers or endpoint",
        hint="answers of the data itself need no endpoint",
    )


def _key(plan: TrainingPlan, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Return the key that must be unchanged to resume a run. The batch size may change."""
    data, target = plan.data, plan.target
    digest = hashlib.sha256()
    for document, tokens in prompts:
        digest.update(json.dumps([document, [int(token) for token in tokens]]).encode())
    key = {
        "target": {file.as_posix(): cached_file_hash(target.folder / file) for file in sorted(target.files)},
        "prompts": digest.hexdigest(),
        "answers": data.answers,
        "temperature": data.temperature,
        "max_new_tokens": data.max_new_tokens,
        "length": capacity(plan),
    }
    key |= {"endpoint": data.endpoint, "endpoint_model": data.endpoint_model} if data.answers == "endpoint" else {}
    key |= {"sampled": data.sampled} if data.temperature and data.sampled < 1 else {}
    return key | ({"seed": plan.seed} if data.temperature else {})


def _check_room(plan: TrainingPlan, prompts: Sequence[Prompt], groups: Sequence[Sequence[int]], folder: Path) -> None:
    """Raise BuildError if the disk clearly has no room. Every line is stored twice: as generated, and in order."""
    tokens = sum(len(prompts[number][1]) + plan.data.max_new_tokens for group in groups for number in group)
    needed, free = 2 * BYTES * tokens, shutil.disk_usage(folder).free
    if free < needed:
        raise BuildError(
            f"not enough disk space in {folder}: received {free / 1e6:.1f} MB free, expected {needed / 1e6:.1f} "
            "MB for answers",
            hint="free some disk space, give another folder with --work, or set answers.max_new_tokens lower",
        )


def _said(found: Counter[str]) -> str:
    return f"{found[DONE]} made, {found[FAILED]} failed, {found[SKIPPED]} skipped, of {sum(found.values())}"
