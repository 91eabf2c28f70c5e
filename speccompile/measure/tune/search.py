"""Search over draft shapes: build bundles, and derive all candidates from them."""

from collections.abc import Mapping, Sequence

from speccompile.measure.tune.predict import (
    Candidate,
    LinearCost,
    autoregressive,
    chain_costs,
    fit_draft_cost,
    speculative,
)
from speccompile.measure.tune.rounds import Windows, shortened
from speccompile.measure.tune.space import DraftShape
from speccompile.measure.tune.trial import Trial, TrialRequest, TrialRunner


class Search:
    """Search over draft shapes. Chains need two bundles, the longest and the shortest. A chain of K accepts what the
    longest accepts, cut at K; its window costs what the longest's graph takes at this width; its draft cost is linear
    in K. Every tree needs a separate bundle."""

    def __init__(self, trials: TrialRunner, wanted: Sequence[DraftShape]) -> None:
        self._trials, self._wanted = trials, wanted
        self.candidates: list[Candidate] = []
        self.lines: list[tuple[str | None, int, LinearCost]] = []
        """(precision, threads, cost line in seconds) of the drafts of chains."""

    def run(self) -> None:
        chains = sorted(shape.drafts for shape in self._wanted if shape.drafts and self._trials.source.is_chain)
        others = [shape for shape in self._wanted if shape.drafts not in chains]
        wanted = [*self._extremes(chains), *map(TrialRequest, others)]
        found = {each.shape: trial for each, trial in zip(wanted, self._trials.try_all(wanted), strict=True)}
        if chains:
            self._add_chains(chains, {drafts: found[DraftShape(drafts=drafts)] for drafts in (chains[-1], chains[0])})
        for shape in others:
            self._add_single(shape, found[shape])
        for threads in self._trials.threads:
            plain, settings = self._trials.plain[threads], self._trials.source.none_settings()
            self.candidates.append(autoregressive(plain, threads, settings))

    def _extremes(self, chains: Sequence[int]) -> list[TrialRequest]:
        """Return trials of the longest and the shortest chain."""
        if not chains:
            return []
        longest, widths = chains[-1], [drafts + 1 for drafts in chains]
        wide = longest + 1 > self._trials.source.plan.prefill_chunk
        settings = [f"cache.prefill_chunk={longest + 1}"] if wide else []  # both bundles then take every width
        return [
            TrialRequest(DraftShape(drafts=drafts), widths, settings, accepting=drafts == longest)
            for drafts in dict.fromkeys((longest, chains[0]))
        ]

    def _add_chains(self, chains: Sequence[int], ends: Mapping[int, Trial]) -> None:
        longest = chains[-1]
        manifest, rounds = ends[longest].manifest, ends[longest].rounds
        fused = any(graph.name == "step" for graph in manifest.graphs)
        for precision, threads in ends[longest].costs:
            measured = {drafts: trial.costs[precision, threads] for drafts, trial in ends.items()}
            line = fit_draft_cost(measured, fused=fused)
            self.lines += [(precision, threads, line)] if line else []
            for drafts in chains:
                shape = DraftShape(drafts=drafts)
                self.candidates.append(
                    speculative(
                        shape.label,
                        Windows(drafts, any_width=not fused),
                        chain_costs(measured, drafts, fused=fused),
                        [shortened(each, longest, drafts) for each in rounds[precision]],
                        depth=drafts,
                        catch_up=manifest.catch_up,
                        precision=precision,
                        threads=threads,
                        settings=self._settings(shape, precision),
                    )
                )

    def _add_single(self, shape: DraftShape, trial: Trial) -> None:
        manifest = trial.manifest
        self.candidates += [
            speculative(
                shape.label,
                Windows.of(manifest),
                costs,
                trial.rounds[precision],
                depth=manifest.depth,
                catch_up=manifest.catch_up,
                precision=precision,
                threads=threads,
                settings=self._settings(shape, precision),
            )
            for (precision, threads), costs in trial.costs.items()
        ]

    def _settings(self, shape: DraftShape, precision: str | None) -> tuple[str, ...]:
        source = self._trials.source
        return (*source.shape_settings(shape), *source.precision_settings(precision))
