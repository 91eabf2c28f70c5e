"""A checkpoint compiled and run: what its rounds really give."""

from collections.abc import Sequence
from pathlib import Path

from speccompile.measure.compare.subprocess_job import run_apart
from speccompile.progress import log_step
from speccompile.train.evaluate.checkpoint import Checkpoint
from speccompile.train.evaluate.rounds import Answer, SimulatedDecoding, cut

_MODULE = "speccompile.train.evaluate.subprocess_job"


def run_checkpoint(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    work: Path,
    *,
    tokens: int | None,
    remember: bool = True,
) -> SimulatedDecoding:
    """Compile a checkpoint and continue the prompts with it, in a process of its own, all drafts in every round.

    tokens: of a chain, None for the shape that the recipe has. work: an existing folder, where the bundle is for so
    long. remember: use the cache of builds, which keeps what the target's steps gave. Raises what a build raises,
    PromptError for prompts that the bundle cannot take, and EngineError for a process that ended otherwise.
    """
    job = {
        "recipe": str(checkpoint.recipe),
        "settings": checkpoint.settings(tokens),
        "prompts": [list(prompt) for prompt in prompts],
        "max_new_tokens": max_new_tokens,
        "work": str(work.resolve()),
        "remember": remember,
    }
    with log_step(f"compiling and running {checkpoint.folder.name}"):
        ran = run_apart(_MODULE, job, f"compiling and running {checkpoint.folder}")
    answers = [Answer(tuple(prompt), tuple(new)) for prompt, new in zip(prompts, ran["new"], strict=True)]
    return SimulatedDecoding(ran["shape"], tuple(answers), tuple(map(cut, ran["paths"], map(len, ran["new"]))))
