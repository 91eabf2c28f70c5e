"""Tasks on the machines of a cluster: concurrent builds, but never two measurements on one machine."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from speccompile.errors import EngineError, SpeccompileError
from speccompile.machine.executor import Task
from speccompile.progress import LOGGER

T = TypeVar("T")


class RayPool:
    """Executor on the machines that the cluster has now. A task takes one processor, and `memory` bytes; an exclusive
    task takes all processors of its machine."""

    def __init__(self, memory: int = 0) -> None:
        self._memory = memory
        self._machines = {
            node["NodeID"]: node["Resources"]["CPU"]
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        }

    def run(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | SpeccompileError]]:
        """See `Executor.run`."""
        waiting = deque(enumerate(tasks))
        free = list(self._machines)
        running: dict[Any, tuple[int, str | None]] = {}
        try:
            while waiting or running:
                while waiting and (free or not waiting[0][1].exclusive):
                    number, task = waiting.popleft()
                    machine = free.pop(0) if task.exclusive else None
                    LOGGER.info("%s ...", task.title)
                    running[self._start(task, machine)] = number, machine
                (ended,), _ = ray.wait(list(running), num_returns=1)
                number, machine = running.pop(ended)
                free += [machine] if machine else []
                yield number, _result(ended, tasks[number].title)
        finally:
            for each in running:  # interrupts them, so that they clean up
                ray.cancel(each)

    def _start(self, task: Task[Any], machine: str | None) -> Any:
        options: dict[str, Any] = {"num_cpus": 1, "memory": self._memory, "max_retries": 0}
        if machine is not None:
            options["num_cpus"] = self._machines[machine]
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(machine, soft=False)
        return ray.remote(_act).options(**options).remote(task.function, task.arguments)


def _act(act: Any, arguments: tuple[Any, ...]) -> Any:
    """Run a task on its machine. Return its result, or the SpeccompileError that it raised."""
    try:
        return act(*arguments)
    except SpeccompileError as error:
        return error


def _result(ended: Any, about: str) -> Any:
    """Return the result of a task. Raise any exception of the task that is no SpeccompileError."""
    try:
        return ray.get(ended)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        return EngineError(
            f"{about}: Ray gave it up: {str(error).strip().splitlines()[0]}",
            hint="where memory ran out, let fewer tasks run at once (--memory), or give the machine more",
        )
