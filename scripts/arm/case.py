"""Test case of a kernel: a node and its inputs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from inputs import Array, Runs


@dataclass(frozen=True)
class Case:
    """A node and runs of it. inputs: names of the node's inputs, in order; those in `constants` are initializers of the
    graph. types: dtypes of outputs other than float32."""

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
