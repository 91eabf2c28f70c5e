"""Report of a comparison: the passes of all methods side by side, and published figures of the same methods.

The figures follow Spec-Bench (Xia et al. 2024): tokens per second of a question cover all its turns and the prefill,
and are averaged over questions; a ratio divides two such means; accepted are new tokens per round over all rounds.
Errors of its scripts are avoided: both sides count tokens alike, whole token lists are compared, a repeated
question counts once, by its median, and acceptance is reported by depth.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from speccompile.bundle.image_quality import ImageQuality
from speccompile.machine.system import processor
from speccompile.measure.bench.acceptance import Depth, acceptance_by_depth
from speccompile.measure.bench.cost_model import CostModel, make_budget
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.groups import OVERALL, Group, make_group, make_groups
from speccompile.measure.bench.measure import Divergence, PromptRuns, generations
from speccompile.measure.bench.mode import decode_rate, known_median, make_mode_statistics
from speccompile.measure.compare.dropping import Verdict
from speccompile.measure.compare.merge import differences_of, merge_passes
from speccompile.measure.compare.methods import AUTOREGRESSIVE, Method
from speccompile.measure.compare.passes import MeasuredPass

INTERRUPTED, TIME = "interrupted", "time"
"""Reasons why a comparison ended before all was measured."""


@dataclass(frozen=True)
class Refusal:
    """Method that could not be built or measured, and the reason."""

    name: str
    settings: tuple[str, ...]
    reason: str
    hint: str | None


class _Compared:
    """A method whose tokens were compared with those of autoregressive decoding."""

    exact: bool
    differences: tuple[Divergence, ...]

    @property
    def differs(self) -> bool:
        """Return whether an exact method changed tokens."""
        return self.exact and bool(self.differences)


@dataclass(frozen=True)
class DroppedMethod(_Compared):
    """Method that was not measured further because it could not win. passes: number of complete passes; prompts:
    prompts that the figures cover; ratio_at_most: the highest ratio that it might have; best, best_ratio: the
    best method then, on the same prompts. differences: as those of `MethodReport`."""

    name: str
    settings: tuple[str, ...]
    exact: bool
    passes: int
    prompts: int
    tokens_per_second: float
    mean_accepted: float | None
    ratio: float
    ratio_at_most: float
    best: str
    best_ratio: float
    differences: tuple[Divergence, ...]

    @classmethod
    def of(cls, method: Method, passes: Sequence[MeasuredPass], verdict: Verdict) -> "DroppedMethod":
        """Return the figures of a method's passes, the last one of which may be incomplete."""
        cases, first = merge_passes(passes), passes[0]
        overall = _task(make_group(OVERALL, cases))
        return cls(
            name=method.name,
            settings=method.settings,
            exact=first.exact,
            passes=sum(each.dropped is None for each in passes),
            prompts=verdict.prompts,
            tokens_per_second=overall.tokens_per_second,
            mean_accepted=overall.mean_accepted,
            ratio=verdict.ratio,
            ratio_at_most=verdict.ratio_at_most,
            best=verdict.best,
            best_ratio=verdict.best_ratio,
            differences=differences_of(first.manifest, cases) or (),
        )


@dataclass(frozen=True)
class Task:
    """Results of one method on one task's questions. ratio: speedup over autoregressive decoding in the same pass."""

    task: str
    prompts: int
    tokens_per_second: float
    ratio: float
    mean_accepted: float | None


@dataclass(frozen=True)
class MethodReport(_Compared):
    """Results of one method. tokens_per_second, ratio and mean_accepted cover all tasks; decode_ratio excludes the
    prefill: the median over pairs of adjacent generations. beside: see `MeasuredPass`; None for autoregression itself.

    kind: kind of drafter; a cascade names its lookup, too, as "model then prompt_lookup", which Spec-Bench lacks.
    passes: number of complete passes. equal_prompts: number of questions with the autoregressive tokens; None with
    sampled drafts and for autoregression.
    """

    name: str
    kind: str
    settings: tuple[str, ...]
    exact: bool
    method: str
    tree: str
    drafts: int
    depth: int
    passes: int
    mean_accepted: float | None
    mean_draft_length: float | None
    tokens_per_second: float
    ratio: float
    decode_ratio: float | None
    tasks: tuple[Task, ...]
    acceptance_by_depth: tuple[Depth, ...]
    costs: CostModel
    memory: dict[str, int]
    beside: str | None
    equal_prompts: int | None
    differences: tuple[Divergence, ...]

    def task(self, name: str) -> Task:
        return next(each for each in self.tasks if each.task == name)


@dataclass(frozen=True)
class ComparisonReport:
    """Report of the whole comparison. complete: all was measured; ended: else why not. ways: methods that ran all
    questions, the highest ratio first. unmeasured: names of those that were left out for that. best: task -> name of
    the method with the highest ratio of those that keep tokens. published: Spec-Bench's tables, reduced to these.
    pictures: the target's quality behind pictures, which all methods share; None for a target that does not see.
    """

    recipe: str
    engine: str
    processor: str
    cpus: int | None
    threads: int | None
    kernels: str | None
    conversation: str | None
    options: dict[str, Any]
    complete: bool
    ended: str | None
    ways: tuple[MethodReport, ...]
    dropped: tuple[DroppedMethod, ...]
    unmeasured: tuple[str, ...]
    refused: tuple[Refusal, ...]
    pictures: ImageQuality | None
    best: dict[str, str]
    published: dict[str, Any]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the documented object of `compare --json`."""
        return asdict(self)

    @property
    def wrong(self) -> list[str]:
        """Return names of the exact methods that changed tokens."""
        return [method.name for method in self.ways if method.differs] + [
            method.name for method in self.dropped if method.differs
        ]

    @property
    def tasks(self) -> list[str]:
        """Return task names in the order of the questions; the overall task is last."""
        return [each.task for each in self.ways[0].tasks]


def make_comparison(
    recipe: str,
    engine: str,
    passes: Mapping[Method, Sequence[MeasuredPass]],
    refused: Mapping[str, Refusal],
    options: Mapping[str, Any],
    *,
    dropped: Sequence[DroppedMethod] = (),
    unmeasured: Sequence[str] = (),
    ended: str | None = None,
) -> ComparisonReport:
    """Return the report. passes: the passes of every method that ran all questions."""
    plain = next(found[0] for method, found in passes.items() if method.name == AUTOREGRESSIVE)
    methods = sorted(
        (make_method_report(method, found) for method, found in passes.items()), key=lambda each: -each.ratio
    )
    return ComparisonReport(
        recipe=recipe,
        engine=engine,
        processor=processor()["name"],
        cpus=os.cpu_count(),
        threads=plain.threads,
        kernels=plain.kernels,
        conversation=plain.conversation,
        options=dict(options),
        complete=ended is None,
        ended=ended,
        ways=tuple(methods),
        dropped=tuple(sorted(dropped, key=lambda each: -each.ratio)),
        unmeasured=tuple(unmeasured),
        refused=tuple(refused.values()),
        pictures=plain.pictures,
        best={task.task: _best(methods, task.task) for task in methods[0].tasks},
        published=published({each.kind for each in methods}),
        versions=plain.versions,
    )


def make_method_report(method: Method, passes: Sequence[MeasuredPass]) -> MethodReport:
    """Return the results of one method. passes: all its passes."""
    first, manifest = passes[0], passes[0].manifest
    cases = merge_passes(passes)
    drafts = manifest.tokens > 0
    differences = differences_of(manifest, cases)
    runs = [one for case in cases for one in generations(case.speculative)]
    costs = _minimum([each.costs for each in passes if each.costs is not None])
    measured = make_mode_statistics([case.speculative if drafts else case.autoregressive for case in cases])
    tasks = tuple(map(_task, make_groups(cases) or (make_group(OVERALL, cases),)))
    return MethodReport(
        name=method.name,
        kind=_kind(manifest.plan["drafter"]),
        settings=method.settings,
        exact=first.exact,
        method=manifest.method,
        tree=manifest.tree,
        drafts=manifest.tokens,
        depth=manifest.depth,
        passes=len(passes),
        mean_accepted=measured.mean_accepted,
        mean_draft_length=measured.mean_draft_length,
        tokens_per_second=tasks[-1].tokens_per_second,
        ratio=tasks[-1].ratio,
        decode_ratio=_decode_ratio(cases),
        tasks=tasks,
        acceptance_by_depth=acceptance_by_depth(
            [one for case in cases for one in generations(case.speculative[:1])], manifest
        ),
        costs=make_budget(costs, first.context, manifest, runs),
        memory=first.memory,
        beside=first.beside if drafts else None,
        equal_prompts=None if differences is None else len(cases) - len(differences),
        differences=differences or (),
    )


def published(kinds: set[str]) -> dict[str, Any]:
    """Return Spec-Bench's tables and their source, reduced to methods of these kinds of drafter."""
    data: dict[str, Any] = json.loads((files("speccompile.measure.compare") / "spec_bench.json").read_bytes())
    tables = [table | {"rows": [row for row in table["rows"] if row["kind"] in kinds]} for table in data["tables"]]
    return data | {"tables": [table for table in tables if table["rows"]]}


def _kind(drafter: Mapping[str, Any]) -> str:
    """Return the drafter's kind with its cascade. drafter: section of a manifest's plan."""
    cascade, inner = drafter.get("cascade") or {}, drafter.get("inner")
    beside = [
        f"{word} {part['kind']}" for word, part in (("then", cascade.get("then")), ("or", cascade.get("gate"))) if part
    ]
    return " ".join([drafter["kind"], *beside, *([f"by {inner['kind']}"] if inner else [])])


def _minimum(costs: Sequence[GraphCosts]) -> GraphCosts:
    """Return the minimum of the medians of several passes: other load makes a graph slower, never faster."""
    drafts = [each.draft for each in costs if each.draft is not None]
    verify = {width: min(each.verify[width] for each in costs) for width in costs[0].verify}
    return GraphCosts(verify, min(drafts, default=None), min(each.host for each in costs))


def _task(group: Group) -> Task:
    ours = group.speculative or group.autoregressive
    ratio = 1.0 if group.speedup is None else group.speedup
    return Task(group.group, group.prompts, ours.tokens_per_second, ratio, ours.mean_accepted)


def _decode_ratio(cases: Sequence[PromptRuns]) -> float | None:
    """Return the median ratio of decode speeds; 1 without a drafter."""
    if not cases[0].speculative:
        return 1.0
    pairs = [
        (decode_rate(ours), decode_rate(theirs))
        for case in cases
        for ours, theirs in zip(generations(case.speculative), generations(case.autoregressive), strict=True)
    ]
    return known_median(ours / theirs for ours, theirs in pairs if ours and theirs)


def _best(methods: Sequence[MethodReport], task: str) -> str:
    kept = [each for each in methods if each.exact and not each.differences]
    return max(kept, key=lambda each: each.task(task).ratio).name
