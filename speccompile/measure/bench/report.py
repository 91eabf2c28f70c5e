"""The whole report: what was run, what both ways did, what costs and memory allow."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from speccompile import __version__
from speccompile.measure.bench.acceptance import Depth, acceptance_by_depth
from speccompile.measure.bench.cost_model import CostModel, make_budget
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.groups import Group, make_groups
from speccompile.measure.bench.measure import Divergence, PromptRuns, generations
from speccompile.measure.bench.mode import ModeStatistics, decode_rate, known_median, make_way
from speccompile.measure.bench.roofline import MemoryReads, Roofline, make_roofline
from speccompile.runtime import Bundle, Generation

LIBRARIES = ("numpy", "tokenizers")


@dataclass(frozen=True)
class Measurements:
    """What is measured beside the generations, all of it optional.

    conversation: how questions were written, see `conversation`. memory: bytes, see `Engine.memory`. costs: over
    `context` committed tokens. reading: for engines on the processor.
    """

    conversation: str | None = None
    memory: dict[str, int] | None = None
    costs: GraphCosts | None = None
    context: int = 1
    reading: MemoryReads | None = None


@dataclass(frozen=True)
class Report:
    """A whole benchmark. Without a drafter `speculative`, the speedups and `equal_prompts` are None.

    equal_prompts is None, too, where drafts are drawn: the two ways then use other random numbers, and give other
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
    """The other options of sampling that were given, by name."""
    engine: str
    kernels: str | None
    """None for engines that are not on the processor."""
    threads: int | None
    """None where the engine knows of none."""
    cpus: int | None
    load_seconds: float
    """Until the bundle was opened, its hashes compared."""
    memory: dict[str, int] | None
    """Bytes of this process, see `Engine.memory`."""
    prompts: int
    conversation: str | None
    """How questions were written: chat_template or plain. None where there were none."""
    max_new_tokens: int
    repeats: int
    full_prompts: int
    """Prompts at which a generation ended because the bundle's buffers were full."""
    draft_length: str | None
    """adaptive | fixed; None without a drafter."""
    speculative: ModeStatistics | None
    autoregressive: ModeStatistics
    speedup: float | None
    """Median of the ratios of tokens per second, each of two generations that ran one after the other."""
    decode_speedup: float | None
    acceptance_by_depth: tuple[Depth, ...]
    groups: tuple[Group, ...]
    costs: CostModel | None
    roofline: Roofline | None
    equal_prompts: int | None
    differences: tuple[Divergence, ...]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The documented object of `bench --json`."""
        return asdict(self)


def make_report(
    bundle: Bundle,
    cases: Sequence[PromptRuns],
    *,
    threads: int | None,
    max_new_tokens: int,
    adaptive: bool = True,
    surroundings: Measurements | None = None,
    **sampling: Any,
) -> Report:
    """The report of what `measure` ran, with the same options. threads: those of the engine."""
    manifest, around = bundle.manifest, surroundings or Measurements()
    temperature, seed = sampling.pop("temperature", 0.0), sampling.pop("seed", None)
    comparable = bundle.speculative and not (temperature and manifest.sample)
    differences = tuple(found for case in cases if (found := case.difference())) if comparable else ()
    ours = make_way([case.speculative for case in cases]) if bundle.speculative else None
    theirs = make_way([case.autoregressive for case in cases])
    runs = [one for case in cases for one in generations(case.speculative)]
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
        engine=bundle.engine_name,
        kernels=bundle.kernels,
        threads=threads,
        cpus=os.cpu_count(),
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
        acceptance_by_depth=acceptance_by_depth(
            [one for case in cases for one in generations(case.speculative[:1])], manifest
        ),
        groups=make_groups(cases),
        costs=make_budget(around.costs, context, manifest, runs) if around.costs else None,
        roofline=make_roofline(around.reading, manifest, graphs, context, ours, theirs) if around.reading else None,
        equal_prompts=len(cases) - len(differences) if comparable else None,
        differences=differences,
        versions=library_versions(bundle.entry.backend),
    )


def mean_context(cases: Sequence[PromptRuns]) -> int:
    """Committed tokens at the middle of a generation, on average over all of them."""
    runs = [one for case in cases for one in generations(case.autoregressive)]
    return round(sum(one.prompt_tokens + len(one.token_ids) / 2 for one in runs) / len(runs))


def _pairs(cases: Sequence[PromptRuns]) -> list[tuple[Generation, Generation]]:
    """Both ways of every turn and repeat; none without a drafter."""
    return [
        pair
        for case in cases
        if case.speculative
        for pair in zip(generations(case.speculative), generations(case.autoregressive), strict=True)
    ]


def _is_full(case: PromptRuns) -> bool:
    return any(
        one.finish_reason == "capacity" for way in (case.speculative, case.autoregressive) for one in generations(way)
    )


def _ratio(pairs: Iterable[tuple[Generation, Generation]], rate: Callable[[Generation], float | None]) -> float | None:
    rates = [(rate(ours), rate(theirs)) for ours, theirs in pairs]
    return known_median(ours / theirs for ours, theirs in rates if ours and theirs)


def library_versions(backend: str) -> dict[str, str]:
    """Those of the libraries that took part. backend: the engine's, which is also the name of its module."""
    names = (*LIBRARIES, backend)
    used = {name: str(sys.modules[name].__version__) for name in names if name in sys.modules}
    return {"speccompile": __version__, "python": platform.python_version()} | used
