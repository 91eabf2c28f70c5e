"""Schema of the section `prove`: see `recipe.schema`."""

from speccompile.plan.section import Section
from speccompile.plan.section import optional as _optional


class Prove(Section):
    prompts: str | None = _optional("a file with one prompt a line", "prompts.jsonl", min_length=1)
    held_out: str | None = _optional("a file with one text a line", "held_out.jsonl", min_length=1)
    max_new_tokens: int | None = _optional("a whole number from 1 on", 64, ge=1)
    max_encoder_divergence: float | None = _optional("a number of nats above 0", 0.01, gt=0, allow_inf_nan=False)
