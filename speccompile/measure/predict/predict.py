"""Predict a plan's speed: autoregression, and every draft length or its tree.

Leviathan et al. 2023, theorem 3.8, with predicted times: a round gives 1 + sum(a_d) tokens and takes the time of a
window of K + 1 tokens and of the draft.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile.measure.bench.cost_model import acceptance_rate
from speccompile.measure.bench.costs import expected_tokens
from speccompile.measure.predict.accept import accepted_at_depth
from speccompile.measure.predict.costs import Costs, Interval, RunTime
from speccompile.measure.predict.work import DraftWork, Work, draft_work, target_work
from speccompile.plan.plan import Plan
from speccompile.recipe.cache_sizes import cache_bytes
from speccompile.recipe.resource_estimate import running_bytes

LONGEST = 8
"""Chains of 1 to this many draft tokens are predicted, and the plan's own."""

CONTEXT = 256
"""Committed tokens, unless given: as many as fit where the caches are smaller."""


@dataclass(frozen=True)
class PredictedShape:
    """One draft length or tree. drafts, depth: draft tokens of a round, and the longest path of them; 0 without.

    round_seconds: bounds. break_even: acceptance length, bonus token included, from which it is faster;
    break_even_rate: the constant acceptance rate of a chain that gives it, None for trees and if none does.
    tokens_per_second, speedup: bounds with the given acceptance; without one, those between no draft accepted and all.
    faster: whether the whole interval of the speedup lies above 1; None without acceptance.
    """

    name: str
    drafts: int
    depth: int
    round_seconds: Interval
    limit: str
    break_even: float
    break_even_rate: float | None
    tokens_per_round: Interval
    tokens_per_second: Interval
    speedup: Interval
    faster: bool | None


@dataclass(frozen=True)
class Prediction:
    """Bytes of memory, the ceiling of autoregression by bandwidth alone in tokens a second, and all draft lengths or
    trees."""

    name: str
    device: str
    precision: str
    context: int
    weight_bytes: int
    drafter_bytes: int
    cache_bytes: int
    running_bytes: int
    device_memory: int | None
    ceiling: float
    acceptance: tuple[float, ...] | None
    shapes: tuple[PredictedShape, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        shapes = [
            {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(shape).items()}
            for shape in self.shapes
        ]
        return asdict(self) | {"shapes": shapes, "notes": list(self.notes)}


def predict(
    plan: Plan,
    costs: Costs,
    *,
    device: str,
    memory: int | None,
    acceptance: Sequence[float] | None = None,
    context: int | None = None,
    notes: Sequence[str] = (),
) -> Prediction:
    """Predict the first engine of a plan. device: its name. memory: its bytes, None if not known.

    acceptance: probability at every depth that the drafts before were accepted. context: committed tokens. Raise
    UsageError for a model or a drafter whose time has no formula.
    """
    target, draft = target_work(plan), draft_work(plan)
    said = list(notes)
    if context is not None and context > plan.max_length:
        said.append(f"{context} committed tokens do not fit in the caches: {plan.max_length} are predicted")
    context = min(context or CONTEXT, plan.max_length)
    needed = running_bytes(plan)
    if memory is not None and needed > memory:
        said.append(f"{needed / 1e9:.2f} GB do not fit in the device's {memory / 1e9:.2f} GB of memory")
    return Prediction(
        name=plan.name,
        device=device,
        precision=plan.engines[0].precision.target,
        context=context,
        weight_bytes=round(target.weight_bytes),
        drafter_bytes=round(draft.work.weight_bytes) if draft else 0,
        cache_bytes=cache_bytes(plan),
        running_bytes=needed,
        device_memory=memory,
        ceiling=costs.ceiling(target.weight_bytes + context * target.cache_bytes),
        acceptance=tuple(acceptance) if acceptance is not None else None,
        shapes=tuple(_predict_shapes(plan, costs, target, draft, context, acceptance)),
        notes=tuple(said),
    )


def _predict_shapes(
    plan: Plan,
    costs: Costs,
    target: Work,
    draft: DraftWork | None,
    context: int,
    acceptance: Sequence[float] | None,
) -> Iterator[PredictedShape]:
    """Yield autoregression, and every draft length or the tree."""
    resident = target.weight_bytes + (draft.work.weight_bytes if draft else 0)
    alone = costs.run(target, 1, context, target.weight_bytes)
    is_chain = plan.drafter.tree.kind == "chain"
    yield _autoregression(alone)
    for name, drafts, depth in _shapes(plan):
        verify = costs.run(target, drafts + 1, context, resident)
        runs = [verify, *_draft_runs(costs, draft, drafts, depth, context, resident)]
        yield _shape(name, drafts, depth, runs, alone, costs, acceptance, is_chain=is_chain)


def _shapes(plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Yield name, draft tokens and depth of what the plan's drafter can draft."""
    if not plan.drafter.tokens:
        return
    if plan.drafter.tree.kind != "chain":
        yield f"tree of {plan.drafter.tokens}", plan.drafter.tokens, plan.drafter.tree.depth
        return
    for drafts in sorted({*range(1, LONGEST + 1), plan.drafter.tokens}):
        yield f"{drafts} draft{'s' if drafts > 1 else ''}", drafts, drafts


def _draft_runs(
    costs: Costs, draft: DraftWork | None, drafts: int, depth: int, context: int, resident: float
) -> Iterator[RunTime]:
    """Yield the drafter's runs: the first reads the newly committed tokens, two of them, or the whole block."""
    if draft is None:
        return
    if not draft.passes:
        yield costs.run(draft.work, drafts, context, resident)
        return
    yield costs.run(draft.work, 2, context, resident)
    for _ in range(depth - 1):
        yield costs.run(draft.work, max(drafts // depth, 1), context, resident)


def _autoregression(alone: RunTime) -> PredictedShape:
    seconds = alone.seconds
    return PredictedShape(
        "autoregression", 0, 0, seconds, alone.limit, 1.0, None, Interval(1.0, 1.0),
        Interval(1 / seconds.high, 1 / seconds.low), Interval(1.0, 1.0), None,
    )  # fmt: skip


def _shape(
    name: str,
    drafts: int,
    depth: int,
    runs: Sequence[RunTime],
    alone: RunTime,
    costs: Costs,
    acceptance: Sequence[float] | None,
    *,
    is_chain: bool,
) -> PredictedShape:
    low, high, middle = (
        sum(values)
        for values in (
            [run.seconds.low for run in runs], [run.seconds.high for run in runs], [run.middle for run in runs]
        )
    )  # fmt: skip
    ratio, error = middle / alone.middle, costs.ratio_error
    if acceptance is None:
        tokens = Interval(1.0, 1.0 + depth)
    else:
        expected = expected_tokens(accepted_at_depth(acceptance, depth))
        tokens = Interval(expected, expected)
    speedup = Interval(tokens.low / ratio * (1 - error), tokens.high / ratio * (1 + error))
    return PredictedShape(
        name=name,
        drafts=drafts,
        depth=depth,
        round_seconds=Interval(low, high),
        limit=runs[0].limit,
        break_even=ratio,
        break_even_rate=acceptance_rate(ratio, depth) if is_chain else None,
        tokens_per_round=tokens,
        tokens_per_second=Interval(tokens.low / high, tokens.high / low),
        speedup=speedup,
        faster=None if acceptance is None else speedup.low > 1,
    )
