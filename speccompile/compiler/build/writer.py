"""The drafter over texts as a plan of its own: its bundle lies inside that of the target, and the host runs it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from speccompile.bundle.prompts import read_prompts
from speccompile.contract import FLOAT_CACHE
from speccompile.drafters import NONE
from speccompile.plan.caches import CachePlan
from speccompile.plan.plan import DrafterPlan, EnginePlan, ModelPlan, Plan, PrecisionPlan, VerifyPlan
from speccompile.progress import log_step
from speccompile.recipe.trees import NO_TREE
from speccompile.runtime.rounds.host_drafts import WRITER


def build_writer(plan: Plan, folder: Path, build: Callable[[Plan, Path], Path]) -> None:
    """Build the drafter over texts, if there is one, into the bundle `folder`. build: builds a plan into a folder."""
    if plan.drafter.over_texts:
        with log_step("building the drafter over texts"):
            build(writer_plan(plan), folder / WRITER)


def split_writer(plan: Plan) -> tuple[Plan, ModelPlan | None]:
    """Return the plan as the target's graphs see it, without a drafter over texts, and the model of that drafter."""
    if not plan.drafter.over_texts or not plan.drafter.models:
        return plan, None
    (model,), drafter = plan.drafter.models, replace(plan.drafter, models=())
    engines = tuple(replace(each, precision=replace(each.precision, drafter=None)) for each in plan.engines)
    return replace(plan, drafter=drafter, engines=engines), model


def writer_plan(plan: Plan) -> Plan:
    """Return the plan of the drafter's bundle: its model alone, greedy, for one text at a time, with the engines and
    the lengths of the target's."""
    (model,) = plan.drafter.models
    prompts = plan.prove.prompts
    are_texts = prompts is not None and all(isinstance(prompt, str) for prompt in read_prompts(prompts))
    prove = replace(plan.prove, held_out=None, held_out_reference=None)
    return replace(
        plan,
        name=f"{plan.name}-drafter",
        target=model,
        drafter=DrafterPlan(NONE, 0, NO_TREE),
        decoding="greedy",
        graphs="separate",
        verify=VerifyPlan("exact", exact=True, parameters={}),
        batch_size=1,
        engines=tuple(map(_engine, plan.engines)),
        prove=prove if are_texts else replace(prove, prompts=None, reference=None),
        notes=(),
        constraints=False,
        caches=CachePlan(plan.caches.drafter, FLOAT_CACHE, plan.caches.max_divergence),
        adapters=None,
        prefixes=(),
        images=None,
        source=None,
    )


def _engine(engine: EnginePlan) -> EnginePlan:
    """Return the engine with the drafter's precision for its model."""
    word = engine.precision.drafter
    assert word is not None, "a model that drafts has a precision"
    return replace(engine, precision=PrecisionPlan(word, None, engine.precision.block_size_of(word)))
