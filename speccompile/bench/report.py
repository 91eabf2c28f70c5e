"""What the runs say: medians over prompts and repeats, and counts over the prompts."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from speccompile import __version__
from speccompile.bench.measure import Case, Difference
from speccompile.runtime import Bundle, Generation

LIBRARIES = ("numpy", "tokenizers")


@dataclass(frozen=True)
class Way:
    """One way of decoding. Rates and times are medians over all generations, None where none had a round."""

    tokens_per_second: float
    """Prefill included."""
    decode_tokens_per_second: float | None
    """Prefill, and the token it gives, excluded."""
    prefill_seconds: float
    verify_seconds: float
    draft_seconds: float
    host_seconds: float
    """Time of the rounds beside their graphs. These four are per generation."""
    host_microseconds_per_round: float | None
    new_tokens: int
    """Over all prompts, once each; as `rounds`."""
    rounds: int
    mean_accepted: float | None
    """New tokens per round, the bonus token included; over all prompts."""


@dataclass(frozen=True)
class Depth:
    """How often the draft at a depth, counted from 1, was accepted."""

    depth: int
    accepted: float
    """Share of all rounds."""
    accepted_after_previous: float | None
    """Share of the rounds in which all drafts before it were; None when there was no such round."""


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
    threads: int | None
    """None: the engine chose."""
    cpus: int | None
    prompts: int
    max_new_tokens: int
    repeats: int
    speculative: Way | None
    autoregressive: Way
    speedup: float | None
    """Median of the ratios of tokens per second, each of two generations that ran one after the other."""
    decode_speedup: float | None
    acceptance_by_depth: tuple[Depth, ...]
    equal_prompts: int | None
    differences: tuple[Difference, ...]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The documented object of `bench --json`."""
        return asdict(self)


def make_report(
    bundle: Bundle, cases: Sequence[Case], *, threads: int | None, max_new_tokens: int, **sampling: Any
) -> Report:
    """The report of what `measure` ran, with the same options. `threads` is what the bundle was opened with."""
    pairs = [pair for case in cases for pair in zip(case.speculative, case.autoregressive, strict=bundle.speculative)]
    temperature, seed = sampling.pop("temperature", 0.0), sampling.pop("seed", None)
    comparable = bundle.speculative and not (temperature and bundle.manifest.sample)
    differences = tuple(found for case in cases if (found := case.difference())) if comparable else ()
    return Report(
        bundle=bundle.manifest.name,
        exact=bundle.manifest.exact,
        method=bundle.manifest.method,
        decoding=bundle.manifest.decoding,
        temperature=temperature,
        seed=seed if temperature else None,
        limits={name: value for name, value in sampling.items() if value is not None},
        engine=bundle.engine_name,
        threads=threads,
        cpus=os.cpu_count(),
        prompts=len(cases),
        max_new_tokens=max_new_tokens,
        repeats=len(cases[0].autoregressive),
        speculative=_way([case.speculative for case in cases]) if bundle.speculative else None,
        autoregressive=_way([case.autoregressive for case in cases]),
        speedup=_ratio(pairs, lambda generation: generation.tokens_per_second),
        decode_speedup=_ratio(pairs, _decode_rate),
        acceptance_by_depth=_acceptance([case.speculative[0] for case in cases if case.speculative], bundle),
        equal_prompts=len(cases) - len(differences) if comparable else None,
        differences=differences,
        versions=_versions(bundle.entry.backend),
    )


def _way(generations: Sequence[Sequence[Generation]]) -> Way:
    """generations: those of each prompt."""
    every = [one for repeats in generations for one in repeats]
    first = [repeats[0] for repeats in generations]
    rounds = sum(one.rounds for one in first)
    after_prefill = sum(len(one.token_ids) - 1 for one in first if one.rounds)
    return Way(
        tokens_per_second=median(one.tokens_per_second for one in every),
        decode_tokens_per_second=_median(map(_decode_rate, every)),
        prefill_seconds=median(one.prefill_seconds for one in every),
        verify_seconds=median(one.verify_seconds for one in every),
        draft_seconds=median(one.draft_seconds for one in every),
        host_seconds=median(map(_host_seconds, every)),
        host_microseconds_per_round=_median(_host_seconds(one) / one.rounds * 1e6 for one in every if one.rounds),
        new_tokens=sum(len(one.token_ids) for one in first),
        rounds=rounds,
        mean_accepted=after_prefill / rounds if rounds else None,
    )


def _acceptance(generations: Sequence[Generation], bundle: Bundle) -> tuple[Depth, ...]:
    accepted = [length - 1 for one in generations for length in one.path_lengths]
    if not accepted:
        return ()
    reached = [sum(count >= depth for count in accepted) for depth in range(bundle.manifest.depth + 1)]
    return tuple(
        Depth(depth, reached[depth] / len(accepted), reached[depth] / before if before else None)
        for depth, before in enumerate(reached[:-1], 1)
    )


def _host_seconds(one: Generation) -> float:
    return one.seconds - one.prefill_seconds - one.verify_seconds - one.draft_seconds


def _decode_rate(one: Generation) -> float | None:
    return (len(one.token_ids) - 1) / (one.seconds - one.prefill_seconds) if one.rounds else None


def _ratio(pairs: Iterable[tuple[Generation, Generation]], rate: Callable[[Generation], float | None]) -> float | None:
    rates = [(rate(ours), rate(theirs)) for ours, theirs in pairs]
    return _median(ours / theirs for ours, theirs in rates if ours and theirs)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _versions(backend: str) -> dict[str, str]:
    """Those of the libraries that took part. backend: the engine's, which is also the name of its module."""
    names = (*LIBRARIES, backend)
    used = {name: str(sys.modules[name].__version__) for name in names if name in sys.modules}
    return {"speccompile": __version__, "python": platform.python_version()} | used
