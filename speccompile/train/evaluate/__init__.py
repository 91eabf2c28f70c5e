"""Evaluate a checkpoint: acceptance by depth on held-out samples, simulated rounds, and compiled rounds.

    depths       acceptance by depth of drafts at all anchors (`drafted`) of held-out samples; `held_out_loss`
    rounds       simulated rounds over the target's own continuations; `compiled`: the same, compiled and run
    checkpoint   a folder that training has written, as a recipe compiles it
    differences  between the two, and whether float noise explains them; `evaluated`: a line of curves.jsonl

For a greedy chain simulated and compiled rounds are equal: after a bonus token, the target accepts exactly the drafts
that equal its own text, and they are drafted from that text. A head for a tree is evaluated as a chain, in `simulated`
and in `compiled`; its own shape is run additionally.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speccompile.drafters.trainable import TrainableDrafter
from speccompile.progress import LOGGER
from speccompile.train.data.sounds import Sounds
from speccompile.train.evaluate.checkpoint import Checkpoint
from speccompile.train.evaluate.compiled import run_checkpoint
from speccompile.train.evaluate.depths import DepthCounts, Texts, depths
from speccompile.train.evaluate.differences import Difference, differences
from speccompile.train.evaluate.evaluated import Evaluated, best
from speccompile.train.evaluate.rounds import Answer, SimulatedDecoding, answer, simulate_rounds
from speccompile.train.evaluate.texts import batches, prompts_of
from speccompile.train.teacher import Teacher

__all__ = [
    "Answer",
    "Checkpoint",
    "DepthCounts",
    "Difference",
    "Evaluated",
    "Run",
    "SimulatedDecoding",
    "Texts",
    "answer",
    "batches",
    "best",
    "depths",
    "differences",
    "evaluate",
    "prompts_of",
    "run_checkpoint",
    "simulate_rounds",
]


@dataclass(frozen=True)
class Run:
    """Compiled run of a checkpoint. work: an existing folder for the temporary bundle. own: also run the recipe's own
    shape, unless it is the simulated chain."""

    checkpoint: Checkpoint
    max_new_tokens: int
    work: Path
    own: bool = False
    use_build_cache: bool = True


def evaluate(
    student: TrainableDrafter,
    teacher: Teacher,
    counts: DepthCounts,
    answers: Sequence[Answer],
    tokens: int,
    *,
    step: int,
    seconds: float,
    loss: float | None = None,
    run: Run | None = None,
) -> Evaluated:
    """Evaluate a checkpoint, in one process. student: the drafter, loaded from the checkpoint's files
    (`Checkpoint.student`). counts: sum of `depths` over all processes. answers: from `answer`, equal in every
    evaluation. tokens: length of the chain. run: None to compile nothing.

    Warn if compiled and simulated rounds differ by more than float noise. Raise the errors of `run_checkpoint`.
    """
    found = Evaluated(step, seconds, counts, simulate_rounds(student, teacher, answers, tokens), loss=loss)
    if run is None:
        return found
    compiled = _run(run, answers, tokens, teacher.sounds)
    apart = differences(student, teacher, found.simulated, compiled, tokens)
    _warn(run.checkpoint, [each for each in apart if not each.is_near_tie], found.simulated, compiled)
    own = _run(run, answers, None, teacher.sounds) if run.own and not _is_chain(run.checkpoint, tokens) else None
    return replace(found, compiled=compiled, own=own, differences=apart)


def _run(run: Run, answers: Sequence[Answer], tokens: int | None, sounds: Sounds | None) -> SimulatedDecoding:
    prompts = [each.prompt for each in answers]
    return run_checkpoint(
        run.checkpoint,
        prompts,
        run.max_new_tokens,
        run.work,
        tokens=tokens,
        use_build_cache=run.use_build_cache,
        sounds=sounds,
    )


def _is_chain(checkpoint: Checkpoint, tokens: int) -> bool:
    """Return whether the recipe drafts a chain of `tokens`, without a cascade."""
    drafter = checkpoint.plan(None).drafter
    return (drafter.tree.kind, drafter.tokens, drafter.cascade) == ("chain", tokens, None)


def _warn(
    checkpoint: Checkpoint, wrong: Iterable[Difference], simulated: SimulatedDecoding, compiled: SimulatedDecoding
) -> None:
    for each in list(wrong)[:1]:
        LOGGER.warning(
            "%s: compiled, it accepts %s tokens a round, simulated %s; first at new token %d of prompt %d, where the "
            "%s's logits differ by %.2g, more than float noise (%.1g)\n"
            "hint: what is compiled is not what was trained: please report it with the recipe",
            checkpoint.folder, _shown(compiled), _shown(simulated), each.index, each.prompt + 1, each.who,
            each.margin, each.noise,
        )  # fmt: skip


def _shown(decoded: SimulatedDecoding) -> str:
    return "no" if decoded.mean_accepted is None else f"{decoded.mean_accepted:.3f}"
