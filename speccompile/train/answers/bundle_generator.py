"""Responses by the compiled target: a bundle, built with the build cache and without a proof, generates in batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from speccompile.bundle.sources import AUDIO
from speccompile.drafters import NONE
from speccompile.errors import UnsupportedModelError, UsageError
from speccompile.plan.plan import DrafterPlan, EnginePlan, Plan, PrecisionPlan, ProvePlan, VerifyPlan
from speccompile.plan.sources import SourceFacts, SourcePlan
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import log_step
from speccompile.recipe.engines import BACKEND, PRECISION
from speccompile.recipe.resource_estimate import estimate_resources
from speccompile.recipe.resources import check_resources, find_resources
from speccompile.recipe.trees import NO_TREE
from speccompile.runtime import Bundle, GenerationOptions
from speccompile.train.answers.generator import FailedResponse, GenerationRequest, Response, capacity, ended
from speccompile.train.data.sounds import Sounds

PREFILL_CHUNK = 128


def answer_plan(plan: TrainingPlan) -> Plan:
    """Return the default plan: the target without drafter, float32 on the CPU, with the batch size and the length that
    the responses need."""
    length, source = capacity(plan), plan.target.facts.source
    hears = source is not None and source.audio is not None
    return Plan(
        name=f"{plan.name}-answers",
        target=plan.target,
        drafter=DrafterPlan(NONE, 0, NO_TREE),
        decoding="sampling" if plan.data.temperature else "greedy",
        graphs="separate",
        verify=VerifyPlan("exact", exact=True, parameters={}),
        max_length=length,
        batch_size=plan.data.batch_size,
        prefill_chunk=min(PREFILL_CHUNK, length),
        engines=(EnginePlan(0, "answers", BACKEND, "cpu", None, PrecisionPlan(PRECISION, None, None)),),
        prove=ProvePlan(None, 1),
        notes=(),
        constraints=hears,  # its rules are masks
        source=None if source is None else SourcePlan(_longest(length, source), source),
    )


def _longest(length: int, source: SourceFacts) -> int:
    """Return the length of the source of a bundle whose texts have `length` tokens: of one that hears all its rows."""
    positions = source.positions or length
    return positions if source.audio is not None else min(length, positions)


@contextmanager
def bundle_maker(
    plan: TrainingPlan, build_plan: Plan, folder: Path, *, sounds: Sounds | None = None
) -> Iterator["BundleMaker"]:
    """Build the bundle of `build_plan` into `folder` and open it. sounds: of the prompts of a target that hears.

    Raise UsageError for a bundle that is too short for the responses or cannot sample, and the errors of a build and of
    `Bundle.open`.
    """
    from speccompile.compiler.build import build  # imports torch

    _check(plan, build_plan)
    check_resources(estimate_resources(build_plan), find_resources(folder))
    with log_step("building the bundle that answers"):
        try:
            build(build_plan, folder, prove=False)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                f"the bundle that answers cannot be built: {error}",
                hint="set train.data.answers to transformers, which needs no bundle",
            ) from error
    yield BundleMaker(Bundle.open(folder, verify=False), plan, sounds)


class BundleMaker:
    """Generator for groups of at most the bundle's batch size, of any lengths."""

    words = "the compiled bundle"

    def __init__(self, bundle: Bundle, plan: TrainingPlan, sounds: Sounds | None = None) -> None:
        self._bundle, self._plan, self._sounds = bundle, plan, sounds

    def answer(self, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        ends, warm = self._plan.target.facts.eos_token_ids, group[0].temperature
        options = GenerationOptions(max_new_tokens=max(asked.max_new_tokens for asked in group))
        if warm:
            options = replace(options, temperature=warm, seed=[asked.seed for asked in group])
        self._bundle.reset()  # samples depend on drafts, and drafts on persistent state of earlier groups
        prompts = [asked.tokens for asked in group]
        if self._sounds is not None:
            heard = list(map(self._sounds.asked, prompts))
            prompts, options = (
                [each["prompt"] for each in heard],
                replace(options, audio=[each[AUDIO] for each in heard]),
            )
        elif self._plan.target.facts.source is not None:
            prompts, options = [], replace(options, source=prompts)
        found = self._bundle.generate_batch(prompts, options)
        return [ended(each.token_ids, asked.max_new_tokens, ends) for asked, each in zip(group, found, strict=True)]


def _check(plan: TrainingPlan, build_plan: Plan) -> None:
    if build_plan.max_length < capacity(plan):
        raise UsageError(
            f"the bundle that answers: received {build_plan.max_length} positions, expected {capacity(plan)}, the "
            "tokens of a prompt and its answer",
            hint="set cache.max_length to as many, or train.data.length to fewer",
        )
    if plan.data.temperature and build_plan.decoding != "sampling":
        raise UsageError(
            f"the bundle that answers: received decoding {build_plan.decoding}, expected sampling for a temperature of "
            f"{plan.data.temperature:g}",
            hint="set decoding to sampling, or train.data.answers.temperature to 0",
        )
