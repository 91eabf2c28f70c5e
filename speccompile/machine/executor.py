"""Executors of independent tasks: in this process, one after the other, or on other machines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from speccompile.errors import SpeccompileError
from speccompile.progress import heartbeat, log_step

T = TypeVar("T")


@dataclass(frozen=True)
class Task(Generic[T]):
    """An independent task. title: for messages. exclusive: it measures time, so that no other task may run on its
    machine meanwhile. Arguments and result may travel to another machine: plain data."""

    title: str
    function: Callable[..., T]
    arguments: tuple[Any, ...]
    exclusive: bool = False


class Executor(Protocol):
    """Interface of an executor of tasks."""

    def run(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | SpeccompileError]]:
        """Yield (index, result or SpeccompileError) in completion order. Any other exception propagates. Closing the
        iterator cancels running tasks."""
        ...


@dataclass(frozen=True)
class LocalExecutor:
    """Executor in this process, in the order of the tasks. brief: log tasks by
    `heartbeat`, since the caller says what came out, and else by `log_step`."""

    brief: bool = False

    def run(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | SpeccompileError]]:
        for number, task in enumerate(tasks):
            found: T | SpeccompileError
            try:
                with heartbeat(task.title) if self.brief else log_step(task.title):
                    found = task.function(*task.arguments)
            except SpeccompileError as error:
                found = error
            yield number, found


LOCAL = LocalExecutor()


def run_all(pool: Executor, tasks: Sequence[Task[T]]) -> list[T]:
    """Return the results in the order of the tasks. Raise the error of the first task that ends with one."""
    results: dict[int, T] = {}
    for number, found in pool.run(tasks):
        if isinstance(found, SpeccompileError):
            raise found
        results[number] = found
    return [results[number] for number in range(len(tasks))]
