"""The target's own answers to prompts: what a drafter should learn to say is what its target says.

    maker            what is asked and answered, and who answers: the protocol
    by_bundle        the target, compiled by this project's own builder
    by_transformers  `generate`, for targets that the builder refuses
    by_endpoint      a server that speaks OpenAI's completions
    store            the folder: a run that was stopped goes on, and the file that is whole at its end
    make             all of it, in order; every prompt is accounted for

Nothing here depends on where a run was interrupted: prompts are answered in groups that the prompts alone decide, a
group is kept as a whole, and what is drawn is a function of the seed and of the prompt's number.
"""

from speccompile.train.answers.generator import Prompt
from speccompile.train.answers.make import make_answers

__all__ = ["Prompt", "make_answers"]
