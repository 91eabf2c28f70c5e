"""Base of a recipe's sections: mappings without unknown keys, whose fields describe the expected values."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping of the recipe."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def optional(expected: str, example: object, **limits: Any) -> Any:
    """Return a field that may be left out; messages show `expected` and `example`."""
    return Field(None, description=expected, examples=[example], **limits)


def required(expected: str, example: object, **limits: Any) -> Any:
    return Field(description=expected, examples=[example], **limits)
