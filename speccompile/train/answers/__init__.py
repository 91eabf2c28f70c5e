"""Responses of the target to prompts, as training data: a drafter should predict its target's text.

    generator   requests, responses, and the protocol of generators: `bundle_generator`, a compiled target;
                `transformers_generator`, for targets that the builder refuses; `endpoint_generator`, OpenAI's API
    store       the resumable folder, and the complete file at its end
    make        the whole run; every prompt is accounted for

No result depends on interruptions: the groups of prompts are a function of the prompts, a group is stored as a whole,
and random numbers are functions of the seed and the prompt's number.
"""

from speccompile.train.answers.make import make_answers

__all__ = ["make_answers"]
