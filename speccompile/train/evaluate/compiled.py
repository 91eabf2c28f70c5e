"""Compile and run a checkpoint: the tokens of its real rounds."""

from collections.abc import Sequence
from pathlib import Path

from speccompile.measure.compare.subprocess_job import run_apart
from speccompile.progress import log_step
from speccompile.train.data.sounds import Sounds
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
    use_build_cache: bool = True,
    sounds: Sounds | None = None,
) -> SimulatedDecoding:
    """Compile a checkpoint and continue the prompts with it, in a separate process, with full draft length.

    tokens: length of a chain, None for the recipe's shape. work: a folder for the temporary bundle. sounds: of the
    prompts of a target that hears. use_build_cache: take the results of the target's steps from there.
    Raise the errors of a build, PromptError for prompts that the bundle cannot take, and EngineError if the process
    ended without an answer.
    """
    job = {
        "recipe": str(checkpoint.recipe),
        "settings": checkpoint.settings(tokens),
        "prompts": [list(prompt) for prompt in prompts],
        "sounds": None if sounds is None else list(map(sounds.asked, prompts)),
        "max_new_tokens": max_new_tokens,
        "work": str(work.resolve()),
        "use_build_cache": use_build_cache,
    }
    with log_step(f"compiling and running {checkpoint.folder.name}"):
        ran = run_apart(_MODULE, job, f"compiling and running {checkpoint.folder}")
    answers = [Answer(tuple(prompt), tuple(new)) for prompt, new in zip(prompts, ran["new"], strict=True)]
    return SimulatedDecoding(ran["shape"], tuple(answers), tuple(map(cut, ran["paths"], map(len, ran["new"]))))
