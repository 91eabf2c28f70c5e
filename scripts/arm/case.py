"""One case of a kernel: a node, and what goes in."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from inputs import Array, Runs


@dataclass(frozen=True)
class Case:
    """inputs: all of the node's, in order; those in `constants` are part of the graph. types: of the outputs that are
    not float32."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Array]
    runs: Runs
    attributes: dict[str, Any]
    types: dict[str, type[np.generic]] = field(default_factory=dict)

    @property
    def operator(self) -> str:
        return self.name.split(maxsplit=1)[0]
