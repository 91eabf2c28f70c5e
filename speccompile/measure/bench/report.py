"""Benchmark report: the run, statistics of both decoding modes, and the limits from costs and memory."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile import __version__
from speccompile.bundle.image_quality import ImageQuality
from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.measure.bench.acceptance import Depth, acceptance_by_depth
from speccompile.measure.bench.cost_model import CostModel, make_budget
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.groups import Group, make_groups
from speccompile.measure.bench.measure import Divergence, PromptRuns, generations
from speccompile.measure.bench.mode import ModeStatistics, decode_rate, known_median, make_mode_statistics
from speccompile.measure.bench.roofline import MemoryReads, Roofline, make_roofline
from speccompile.runtime import Bundle, Generation

LIBRARIES = ("numpy", "tokenizers")


@dataclass(frozen=True)
class Measurements:
    """Optional measurements in addition to the generations.

    conversation: format of the questions, see `conversation`. memory: bytes, see `Engine.memory`. costs: measured over
    `context` committed tokens. reading: only for engines on the CPU. pictures: quality behind them, as the build
    measured it.
    """

    conversation: str | None = None
    memory: dict[str, int] | None = None
    costs: GraphCosts | None = None
    context: int = 1
    reading: MemoryReads | None = None
    pictures: ImageQuality | None = None


@dataclass(frozen=True)
class MeasuredBundle:
    """Bundle and machine of a measurement. versions: of the libraries, by name."""

    manifest: Manifest
    entry: EngineEntry
    speculative: bool
    exact: bool
    kernels: str | None
    threads: int | None
    cpus: int | None
    load_seconds: float
    versions: dict[str, str]

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None) -> "MeasuredBundle":
        """Return what ran in this process."""
        return cls(
            bundle.manifest, bundle.entry, bundle.speculative, bundle.exact, bundle.kernels, threads, os.cpu_count(),
            bundle.load_seconds, library_versions(bundle.entry.backend),
        )  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Report of one benchmark. Without a drafter `speculative`, the speedups and `equal_prompts` are None.

    equal_prompts is None, too, with sampled drafts: the two modes then use different random numbers, and give different
    tokens of the same distribution.
    """

    bundle: str
    exact: bool
    method: str
    decoding: str
    temperature: float
    seed: int | None
    """None at temperature 0."""
    limits: dict[str, float]
    """The other sampling options of the run, by name."""
    engine: str
    kernels: str | None
    """None for engines that are not on the CPU."""
    threads: int | None
    """None if the engine does not report its threads."""
    cpus: int | None
    load_seconds: float
    """Seconds to open the bundle and check its hashes."""
    memory: dict[str, int] | None
    """Bytes of this process, see `Engine.memory`."""
    prompts: int
    conversation: str | None
    """Format of the questions: chat_template or plain. None without questions."""
    max_new_tokens: int
    repeats: int
    full_prompts: int
    """Number of prompts with a generation that ended because the bundle's buffers were full."""
    draft_length: str | None
    """adaptive | fixed; None without a drafter."""
    speculative: ModeStatistics | None
    autoregressive: ModeStatistics
    speedup: float | None
    """Median ratio of tokens per second, over pairs of generations that ran one after the other."""
    decode_speedup: float | None
    acceptance_by_depth: tuple[Depth, ...]
    groups: tuple[Group, ...]
    costs: CostModel | None
    roofline: Roofline | None
    pictures: ImageQuality | None
    """Quality behind pictures, as the build measured it; None where it did not."""
    equal_prompts: int | None
    differences: tuple[Divergence, ...]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the documented object of `bench --json`."""
        return asdict(self)


def make_report(
    bundle: Bundle, cases: Sequence[PromptRuns], *, threads: int | None, max_new_tokens: int, **options: Any
) -> Report:
    """Return the report of a run of `measure` with the same options, see `report_on`. threads: number of the engine's
    threads."""
    return report_on(MeasuredBundle.of(bundle, threads), cases, max_new_tokens=max_new_tokens, **options)


def report_on(
    bundle: MeasuredBundle,
    cases: Sequence[PromptRuns],
    *,
    max_new_tokens: int,
    adaptive: bool = True,
    surroundings: Measurements | None = None,
    **sampling: Any,
) -> Report:
    """Return the report of measured generations. sampling: options by their names; None for one that was not given."""
    manifest, around = bundle.manifest, surroundings or Measurements()
    temperature, seed = sampling.pop("temperature", 0.0), sampling.pop("seed", None)
    differences = _differences(cases) if bundle.speculative and not (temperature and manifest.sample) else None
    ours = make_mode_statistics([case.speculative for case in cases]) if bundle.speculative else None
    theirs = make_mode_statistics([case.autoregressive for case in cases])
    runs = [one for case in cases for one in generations(case.speculative)]
    first = [one for case in cases for one in generations(case.speculative[:1])]
    pairs = _pairs(cases)
    graphs, context = bundle.entry.graphs, around.context
    return Report(
        bundle=manifest.name,
        exact=bundle.exact,
        method=manifest.method,
        decoding=manifest.decoding,
        temperature=temperature,
        seed=seed if temperature else None,
        limits={name: value for name, value in sampling.items() if value is not None},
        engine=bundle.entry.name,
        kernels=bundle.kernels,
        threads=bundle.threads,
        cpus=bundle.cpus,
        load_seconds=bundle.load_seconds,
        memory=around.memory,
        prompts=len(cases),
        conversation=around.conversation,
        max_new_tokens=max_new_tokens,
        repeats=len(cases[0].autoregressive),
        full_prompts=sum(map(_is_full, cases)),
        draft_length=("adaptive" if adaptive else "fixed") if bundle.speculative else None,
        speculative=ours,
        autoregressive=theirs,
        speedup=_ratio(pairs, lambda generation: generation.tokens_per_second),
        decode_speedup=_ratio(pairs, decode_rate),
        acceptance_by_depth=acceptance_by_depth(first, manifest),
        groups=make_groups(cases),
        costs=make_budget(around.costs, context, manifest, runs) if around.costs else None,
        roofline=make_roofline(around.reading, manifest, graphs, context, ours, theirs) if around.reading else None,
        pictures=around.pictures,
        equal_prompts=None if differences is None else len(cases) - len(differences),
        differences=differences or (),
        versions=bundle.versions,
    )


def _differences(cases: Sequence[PromptRuns]) -> tuple[Divergence, ...]:
    return tuple(found for case in cases if (found := case.difference()))


def mean_context(cases: Sequence[PromptRuns]) -> int:
    """Return the mean number of committed tokens in the middle of a generation."""
    runs = [one for case in cases for one in generations(case.autoregressive)]
    return round(sum(one.prompt_tokens + len(one.token_ids) / 2 for one in runs) / len(runs))


def _pairs(cases: Sequence[PromptRuns]) -> list[tuple[Generation, Generation]]:
    """Return (speculative, autoregressive) of every turn and repeat; nothing without a drafter."""
    return [
        pair
        for case in cases
        if case.speculative
        for pair in zip(generations(case.speculative), generations(case.autoregressive), strict=True)
    ]


def _is_full(case: PromptRuns) -> bool:
    return any(
        one.finish_reason == "capacity" for mode in (case.speculative, case.autoregressive) for one in generations(mode)
    )


def _ratio(pairs: Iterable[tuple[Generation, Generation]], rate: Callable[[Generation], float | None]) -> float | None:
    rates = [(rate(ours), rate(theirs)) for ours, theirs in pairs]
    return known_median(ours / theirs for ours, theirs in rates if ours and theirs)


def library_versions(backend: str) -> dict[str, str]:
    """Return the versions of the libraries in use. backend: the engine's backend, which is also its module's name."""
    names = (*LIBRARIES, backend)
    used = {name: str(sys.modules[name].__version__) for name in names if name in sys.modules}
    return {"speccompile": __version__, "python": platform.python_version()} | used
