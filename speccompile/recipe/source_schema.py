"""Schema of the section `source`: see `recipe.schema`."""

from speccompile.plan.section import Section
from speccompile.plan.section import optional as _optional


class Source(Section):
    max_length: int | None = _optional("a whole number of tokens from 1 on", 512, ge=1)
