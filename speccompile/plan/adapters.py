"""Slots for adapters that are chosen at run time."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class AdaptersPlan:
    """Adapters of the target that are chosen at run time. rank: the largest; modules: ends of the names of the modules
    that they may change; slots: number of adapters that are loaded at once."""

    rank: int
    modules: tuple[str, ...]
    slots: int

    def change(self, module: str) -> bool:
        """Return whether adapters may change the module of this name."""
        return any(f".{module}".endswith(f".{end}") for end in self.modules)

    def describe(self) -> str:
        """Describe the slots in a line."""
        return f"{self.slots} slots of rank {self.rank} for {', '.join(self.modules)}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"modules": list(self.modules)}
