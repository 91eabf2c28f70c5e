"""Costs of a round: the graphs of a bundle, timed alone over caches that hold a context.

The time of `verify` by window width bounds the speedup. With K drafts one run verifies K + 1 tokens. Speculation is
faster only if it accepts more tokens than this run and the draft cost in runs of width one (Leviathan et al. 2023,
section 3.3, with measured times instead of their cost coefficient c).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.errors import UsageError
from speccompile.measure.bench.measure import host_seconds
from speccompile.measure.bench.sources import source_keyword
from speccompile.progress import log_step
from speccompile.runtime import Bundle
from speccompile.runtime.devices.engine import Run
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.rounds.host_drafts import needs_proposer
from speccompile.runtime.rounds.source_encoder import as_heard

WARM_UP = 3
"""Untimed runs of every width: enough for an engine that records a graph when a shape repeats."""

GENERATIONS, NEW_TOKENS = 3, 16
"""Number and length of the generations that measure the host's time in a round."""

EVERY_WIDTH, WIDE = 8, (16, 32, 64)

ON_DEVICE = (1, 2, 4, 8, 16)
"""Widths on an accelerator: the width matters little there, and an engine may keep few shapes ready to run."""


@dataclass(frozen=True)
class GraphCosts:
    """Median costs in seconds. A fused `step` counts as `verify` at the decoding width, without a separate `draft`."""

    verify: dict[int, float]
    """Window width -> cost of one run."""
    draft: float | None
    """Cost of one run of the drafter in decoding; None if the bundle has none, or it is part of `step`."""
    host: float
    """Cost of one round outside its graphs."""

    def round_seconds(self, width: int) -> float:
        """Return the cost of a round that verifies this width. A window wider than one token includes a draft."""
        draft = self.draft if width > 1 and self.draft is not None else 0.0
        return self.verify[width] + draft + self.host

    def scaled(self, factor: float) -> "GraphCosts":
        """Return the costs of a machine on which every cost is `factor` times as high."""
        draft = None if self.draft is None else factor * self.draft
        return GraphCosts(
            {width: factor * seconds for width, seconds in self.verify.items()}, draft, factor * self.host
        )


def expected_tokens(accepted_at_depth: Sequence[float]) -> float:
    """Return the acceptance length 1 + sum(a_d), with a_d the share of rounds that accept the draft at depth d >= 1.

    For a_d = alpha^d it is (1 - alpha^(K + 1)) / (1 - alpha), equation 1 of Leviathan et al. 2023.
    """
    return 1 + sum(accepted_at_depth)


def break_even(costs: GraphCosts, width: int) -> float:
    """Return the break-even acceptance length (bonus token included) of speculation with this window width.

    Raise KeyError if the cost of this width or of width 1 was not measured.
    """
    return costs.round_seconds(width) / costs.round_seconds(1)


def allows_any_width(manifest: Manifest) -> bool:
    """Return whether the window is only as wide as the number of drafts of the round.

    That holds without a fused `step`, for chains and for trees that the host writes. Any other window has the full
    decoding width, or one token without drafts."""
    fused = any(graph.name == "step" for graph in manifest.graphs)
    return not fused and (manifest.tree == "chain" or needs_proposer(manifest.graphs, manifest.tokens))


def curve_widths(manifest: Manifest, *, on_device: bool = False) -> list[int]:
    """Return the widths of a cost curve and the decoding width. On the CPU: 1 to 8, then 16, 32 and 64."""
    widest = _widest(manifest)
    wanted = ON_DEVICE if on_device else (*range(1, EVERY_WIDTH + 1), *WIDE)
    return sorted({*(width for width in wanted if width <= widest), manifest.tokens + 1})


def measure_costs(bundle: Bundle, widths: Sequence[int], *, context: int, repeats: int) -> GraphCosts:
    """Time the bundle's graphs with `context` committed tokens in one batch slot, as `generate` runs them.

    widths: window widths, timed in turns, `repeats` times, after a warm-up. Every round runs twice and its second time
    counts: the processor's caches then hold the data of an equal round. The bundle must not generate meanwhile. Raise
    UsageError, before any work, for an invalid width, context or number of repeats.
    """
    _check(bundle.manifest, widths, context, repeats)
    with log_step(f"cost of a round over {context} tokens of context"):
        host = _host(bundle, context)
        rounds = _Rounds(bundle, context)
        for width in widths:
            for _ in range(WARM_UP):
                rounds.run(width)
        verify: dict[int, list[float]] = {width: [] for width in widths}
        draft = []
        for _ in range(repeats):
            for width, times in verify.items():
                rounds.run(width)
                verify_seconds, draft_seconds = rounds.run(width)
                times.append(verify_seconds)
                draft += [draft_seconds] if draft_seconds is not None else []
    return GraphCosts({width: median(times) for width, times in verify.items()}, median(draft) if draft else None, host)


def _host(bundle: Bundle, context: int) -> float:
    """Return the seconds of a round outside its graphs. It leaves the context in the caches.

    The generations use a bundle over the same buffers without end-of-sequence tokens: it cannot end before a round.
    """
    manifest = replace(bundle.manifest, eos_token_ids=())
    endless = Bundle(manifest, bundle.engine, bundle.entry, bundle.text, None, bundle.proposer)
    prompt, new = context_tokens(bundle.manifest, context), min(NEW_TOKENS, bundle.manifest.max_length - context)
    source = as_heard(manifest, prompt[: (manifest.source or {}).get("max_length")])
    options = GenerationOptions(max_new_tokens=new, adaptive=False, **source_keyword(manifest, source))
    generations = [endless.generate(prompt, options) for _ in range(GENERATIONS)]
    return median(host_seconds(one) / one.rounds for one in generations)


def context_tokens(manifest: Manifest, count: int) -> list[int]:
    """Return arbitrary token ids, spread over the vocabulary: their embedding rows lie far apart."""
    return [index * 7919 % manifest.vocabulary_size for index in range(count)]


class _Rounds:
    """Bound graphs of a round at several widths, with one active batch slot. A draft follows every wider window."""

    def __init__(self, bundle: Bundle, context: int) -> None:
        self._engine, self._manifest, self._context = bundle.engine, bundle.manifest, context
        self._decoding = bundle.manifest.tokens + 1
        self._fused = bundle.engine.has("step")
        self._verify: dict[int, Run] = {}
        self._draft: Run | None = None
        if bundle.engine.has("draft"):
            # The drafter reads the target's outputs of a decoding window, after windows of any width.
            self.run(self._decoding)
            self._draft = bundle.engine.bind("draft", self._widths(self._decoding))

    def run(self, width: int) -> tuple[float, float | None]:
        """Run one round. Return the seconds of `verify` or `step`, and of `draft` or None."""
        verify = self._verify.get(width) or self._bind(width)
        self._begin()
        start = perf_counter()
        verify()
        verified = perf_counter()
        if self._draft is None or width == 1:
            return verified - start, None
        self._draft()
        return verified - start, perf_counter() - verified

    def _bind(self, width: int) -> Run:
        graph = "step" if self._fused and width == self._decoding else "verify"
        window = self._engine.host_view("window", (self._manifest.batch_size, width))
        window[:] = context_tokens(self._manifest, width)
        return self._verify.setdefault(width, self._engine.bind(graph, self._widths(width)))

    def _widths(self, width: int) -> dict[str, int]:
        return {"window": width, "logit_rows": width, "catch_up": self._manifest.catch_up, "history": 1, "allowed": 1}

    def _begin(self) -> None:
        """Write counts of a window with one certain token and no drafts: the graphs' work depends on widths only."""
        for name, value in {"n_given": 1, "n_total": 1, "length": self._context}.items():
            counts = self._engine.host_view(name, (self._manifest.batch_size,))
            counts[:], counts[0] = 0, value


def _widest(manifest: Manifest) -> int:
    return max(manifest.prefill_chunk, manifest.tokens + 1)


def _check(manifest: Manifest, widths: Sequence[int], context: int, repeats: int) -> None:
    widest, most = _widest(manifest), manifest.max_length - 2
    if not widths or not all(1 <= width <= widest for width in widths):
        raise UsageError(
            f"window widths: received {list(widths)}, expected some from 1 to {widest}",
            hint="the widest window of a bundle is its prefill chunk or its drafts and one, whichever is more",
        )
    if not 1 <= context <= most:
        raise UsageError(
            f"context: received {context} tokens, expected 1 to {most}",
            hint="two tokens less than the bundle's cache.max_length at most",
        )
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}: expected at least 1")
