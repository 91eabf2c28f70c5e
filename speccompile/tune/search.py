"""Everything that is tried, in the order in which bundles are built for it."""

from collections.abc import Sequence

from speccompile.tune.predict import Candidate, Line, autoregressive, chain_costs, draft_line, speculative
from speccompile.tune.rounds import Windows, shortened
from speccompile.tune.space import Shape
from speccompile.tune.trial import Trials


class Search:
    """Of chains two bundles are built, the longest and the shortest: a chain of K accepts what the longest would, cut
    off at K, its window costs what the longest's graph takes at that width, and its draft lies on a line in K. Every
    tree has a bundle of its own."""

    def __init__(self, trials: Trials, wanted: Sequence[Shape]) -> None:
        self._trials, self._wanted = trials, wanted
        self.candidates: list[Candidate] = []
        self.lines: list[tuple[str | None, int, Line]] = []
        """Of chains, by precision and threads: seconds of a draft."""

    def run(self) -> None:
        chains = [shape.drafts for shape in self._wanted if shape.drafts and self._trials.source.is_chain]
        if chains:
            self._try_chains(sorted(chains))
        for shape in self._wanted:
            if shape.drafts not in chains:
                self._try_alone(shape)
        for threads in self._trials.threads:
            plain, settings = self._trials.plain[threads], self._trials.source.none_settings()
            self.candidates.append(autoregressive(plain, threads, settings))

    def _try_chains(self, chains: Sequence[int]) -> None:
        widths = [drafts + 1 for drafts in chains]
        longest = chains[-1]
        wide = longest + 1 > self._trials.source.plan.prefill_chunk
        settings = [f"cache.prefill_chunk={longest + 1}"] if wide else []  # so that either bundle takes every width
        ends = {
            drafts: self._trials.try_shape(Shape(drafts=drafts), widths, settings, accepting=drafts == longest)
            for drafts in dict.fromkeys((longest, chains[0]))
        }
        manifest, rounds = ends[longest].manifest, ends[longest].rounds
        fused = any(graph.name == "step" for graph in manifest.graphs)
        for precision, threads in ends[longest].costs:
            measured = {drafts: trial.costs[precision, threads] for drafts, trial in ends.items()}
            line = draft_line(measured, fused=fused)
            self.lines += [(precision, threads, line)] if line else []
            for drafts in chains:
                shape = Shape(drafts=drafts)
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

    def _try_alone(self, shape: Shape) -> None:
        trial = self._trials.try_shape(shape, [], [], accepting=True)
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

    def _settings(self, shape: Shape, precision: str | None) -> tuple[str, ...]:
        source = self._trials.source
        return (*source.shape_settings(shape), *source.precision_settings(precision))
