"""Schedules of the proof over an engine that counts."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.prove.schedule_runs import run_schedule
from speccompile.contract import PERSISTENT_PREFIX, Graph, Tensor
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.tree import chain

TABLE, STATE = f"{PERSISTENT_PREFIX}table", "target.conv.0"


class Counting:
    """An engine whose graph adds the number of given tokens to its states."""

    def __init__(self) -> None:
        self.held: dict[str, Array] = {}

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> Array:
        if buffer not in self.held or self.held[buffer].shape != shape:
            self.held[buffer] = np.zeros(shape, np.int64)
        return self.held[buffer]

    def has(self, graph: str) -> bool:
        return graph == "step"

    def write_state(self, buffer: str, values: Array) -> None:
        self.held[buffer] = values

    def bind(self, _graph: str, widths: Mapping[str, int], _optional: Any) -> Callable[[], None]:
        given = self.host_view("n_given", (widths["batch"],))

        def run() -> None:
            for name in (TABLE, STATE):
                self.held[name] = self.host_view(name, (1, 1)) + given.sum()

        return run


def tensor(name: str, role: Any, *shape: Any) -> Tensor:
    return Tensor(name, "int64", shape, name, role)


def test_text_that_is_read_again_before_a_round_changes_nothing_that_outlives_requests():
    states = [tensor(name, "state", 1, 1) for name in (TABLE, STATE)]
    graph = Graph("step", (tensor("n_given", "io", "batch"), *states), tuple(states))
    script = Schedule([list(range(9))], [4, 4], chain(2), 4, (((5, 6, 7),), ((5, 6, 8),)), chunk=4)
    engine = Counting()
    run_schedule(cast("Engine", engine), script, [graph])
    assert engine.held[STATE] == 4 + 4 + 2 * (4 + 1)  # the text; before each round its text again
    assert engine.held[TABLE] == 4 + 4 + 2 * 1
