"""Merge of the passes of one method, and its tokens beside the autoregressive ones."""

from collections.abc import Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.measure.bench.measure import Divergence, PromptRuns, generations
from speccompile.measure.compare.passes import MeasuredPass


def merge_passes(passes: Sequence[MeasuredPass]) -> list[PromptRuns]:
    """Return the runs of every question, merged over passes of the same questions."""
    return [_merged(same) for same in zip(*(each.cases for each in passes), strict=True)]


def differences_of(manifest: Manifest, cases: Sequence[PromptRuns]) -> tuple[Divergence, ...] | None:
    """Return where tokens first differ from autoregressive ones, per question; None where they cannot be compared: with
    sampled drafts and without a drafter."""
    if not manifest.tokens or (manifest.sample and _is_sampled(cases)):
        return None
    return tuple(found for case in cases if (found := case.difference()))


def _merged(same: Sequence[PromptRuns]) -> PromptRuns:
    """Return the runs of one question, merged over all passes."""
    ours = tuple(answers for case in same for answers in case.speculative)
    theirs = tuple(answers for case in same for answers in case.autoregressive)
    return PromptRuns(same[0].number, ours, theirs, same[0].group)


def _is_sampled(cases: Sequence[PromptRuns]) -> bool:
    """Return whether tokens were sampled: each generation then has a seed."""
    return any(one.seed is not None for case in cases for one in generations(case.speculative))
