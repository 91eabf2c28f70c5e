"""What sections of a recipe are made of: mappings without unknown keys, whose fields say what is expected there."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping of the recipe."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def optional(expected: str, example: object, **limits: Any) -> Any:
    """A field that may be left out; `expected` and `example` are what messages say of it."""
    return Field(None, description=expected, examples=[example], **limits)


def required(expected: str, example: object, **limits: Any) -> Any:
    return Field(description=expected, examples=[example], **limits)
