"""Prefixes that a bundle ships."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrefixPlan:
    """A prefix that the bundle ships. reference: path of the file of its text, as written in the recipe."""

    name: str
    text: str
    reference: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "prompt_file": self.reference}
