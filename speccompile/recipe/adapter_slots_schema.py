"""Schema of the section adapters."""

from typing import Annotated

from pydantic import Field

from speccompile.plan.section import Section, optional, required


class Adapters(Section):
    """Slots for adapters that are loaded and chosen at run time."""

    modules: list[Annotated[str, Field(min_length=1)]] = required(
        "a list of ends of the names of linear layers", "[q_proj, v_proj]", min_length=1
    )
    rank: int | None = optional("a whole number from 1 to 512", 16, ge=1, le=512)
    slots: int | None = optional("a whole number from 1 to 256", 4, ge=1, le=256)
