"""What a round costs: the graphs of a bundle timed by themselves, over caches that hold a context.

The time of `verify` by the width of its window bounds what speculation can win: with K drafts it verifies K + 1 tokens
in one run, and is faster than autoregression only where it accepts more tokens than that run and the draft cost runs of
width one (Leviathan et al. 2023, section 3.3, with measured times in place of their cost coefficient c).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from speccompile.bundle.manifest import Manifest
from speccompile.errors import UsageError
from speccompile.measure.bench.measure import host_seconds
from speccompile.progress import log_step
from speccompile.runtime import Bundle
from speccompile.runtime.devices.engine import Run
from speccompile.runtime.rounds.host_drafts import needs_proposer

WARM_UP = 3
"""Runs of every width before any is timed: enough for an engine that records a graph when it sees a shape again."""

GENERATIONS, NEW_TOKENS = 3, 16
"""How often, and how far, is generated to see what the host does in a round."""

EVERY_WIDTH, WIDE = 8, (16, 32, 64)

ON_DEVICE = (1, 2, 4, 8, 16)
"""There a window's width matters little, and an engine may keep few shapes ready to run."""


@dataclass(frozen=True)
class GraphCosts:
    """Medians, in seconds. A fused `step` counts as `verify` at the decoding width, and has no `draft` of its own."""

    verify: dict[int, float]
    """Window width -> one run."""
    draft: float | None
    """One run of the drafter when decoding; None where there is none, or it is part of `step`."""
    host: float
    """One round beside its graphs."""

    def round_seconds(self, width: int) -> float:
        """A round that verifies a window of this width; with a draft where the window has room for one."""
        draft = self.draft if width > 1 and self.draft is not None else 0.0
        return self.verify[width] + draft + self.host

    def scaled(self, factor: float) -> "GraphCosts":
        """The same on a machine that takes `factor` times as long for everything."""
        draft = None if self.draft is None else factor * self.draft
        return GraphCosts(
            {width: factor * seconds for width, seconds in self.verify.items()}, draft, factor * self.host
        )


def expected_tokens(accepted_at_depth: Sequence[float]) -> float:
    """New tokens per round: 1 + sum(a_d), with a_d the share of rounds that accept the draft at depth d = 1, 2, ..

    For a_d = alpha^d it is the (1 - alpha^(K + 1)) / (1 - alpha) of Leviathan et al. 2023, equation 1.
    """
    return 1 + sum(accepted_at_depth)


def break_even(costs: GraphCosts, width: int) -> float:
    """The mean accepted (the bonus token included) at which speculation with this window is as fast as without.

    Raises KeyError where the cost of this width or of 1 was not measured.
    """
    return costs.round_seconds(width) / costs.round_seconds(1)


def allows_any_width(manifest: Manifest) -> bool:
    """Whether windows are as wide as there are drafts: chains, and trees that the host has written, where the target
    verifies by itself. Others are as wide as all drafts, or one where there is none."""
    fused = any(graph.name == "step" for graph in manifest.graphs)
    return not fused and (manifest.tree == "chain" or needs_proposer(manifest.graphs, manifest.tokens))


def curve_widths(manifest: Manifest, *, on_device: bool = False) -> list[int]:
    """The widths of a cost curve, with that of decoding: on the processor every one up to 8, wide ones in steps."""
    widest = _widest(manifest)
    wanted = ON_DEVICE if on_device else (*range(1, EVERY_WIDTH + 1), *WIDE)
    return sorted({*(width for width in wanted if width <= widest), manifest.tokens + 1})


def measure_costs(bundle: Bundle, widths: Sequence[int], *, context: int, repeats: int) -> GraphCosts:
    """Time the bundle's graphs with `context` committed tokens in one row, as `generate` runs them.

    widths: of windows, timed in turns `repeats` times after a warm-up. Every round runs twice and its second time
    counts, so that the processor's caches hold what a round of the same kind has left there. The bundle must not be
    generating meanwhile. Raises UsageError, before any work, for a width, context or number of repeats that it cannot
    take.
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
    """Seconds of a round beside its graphs; leaves the context in the caches.

    A bundle that knows no end-of-sequence token, over the same buffers, cannot end before its first round.
    """
    manifest = replace(bundle.manifest, eos_token_ids=())
    endless = Bundle(manifest, bundle.engine, bundle.entry, bundle.text, None, bundle.proposer)
    prompt, new = context_tokens(bundle.manifest, context), min(NEW_TOKENS, bundle.manifest.max_length - context)
    generations = [endless.generate(prompt, max_new_tokens=new, adaptive=False) for _ in range(GENERATIONS)]
    return median(host_seconds(one) / one.rounds for one in generations)


def context_tokens(manifest: Manifest, count: int) -> list[int]:
    """Token ids that have nothing to say, all over the vocabulary: rows of the embedding that lie far apart."""
    return [index * 7919 % manifest.vocabulary_size for index in range(count)]


class _Rounds:
    """The graphs of a round at several widths. One row is active; its draft follows every window that has room."""

    def __init__(self, bundle: Bundle, context: int) -> None:
        self._engine, self._manifest, self._context = bundle.engine, bundle.manifest, context
        self._decoding = bundle.manifest.tokens + 1
        self._fused = bundle.engine.has("step")
        self._verify: dict[int, Run] = {}
        self._draft: Run | None = None
        if bundle.engine.has("draft"):
            # what it reads of the target is that of a window of decoding, also behind others
            self.run(self._decoding)
            self._draft = bundle.engine.bind("draft", self._widths(self._decoding))

    def run(self, width: int) -> tuple[float, float | None]:
        """One round: seconds of `verify` or `step`, and of `draft` where there is one."""
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
        """One token is given and nothing is a draft: what a graph computes depends on the widths alone."""
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
