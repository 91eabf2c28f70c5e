"""Where the parts of a piece of work are done: here, one after the other, or wherever a pool has machines for them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from speccompile.errors import SpeccompileError
from speccompile.progress import log_step

T = TypeVar("T")


@dataclass(frozen=True)
class Task(Generic[T]):
    """A part that needs no other. about: what is done, for people. alone: it measures, so nothing else of ours may run
    on its machine meanwhile. What it takes and gives may go to another machine: plain data."""

    title: str
    function: Callable[..., T]
    arguments: tuple[Any, ...]
    exclusive: bool = False


class Executor(Protocol):
    """Does tasks."""

    def run(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | SpeccompileError]]:
        """The number of each task, and what it gave or raised, as they end. Other exceptions are raised here; whoever
        closes the iterator ends what is under way."""
        ...


class LocalExecutor:
    """This process, in the order of the tasks."""

    def run(self, tasks: Sequence[Task[T]]) -> Iterator[tuple[int, T | SpeccompileError]]:
        for number, task in enumerate(tasks):
            found: T | SpeccompileError
            try:
                with log_step(task.title):
                    found = task.function(*task.arguments)
            except SpeccompileError as error:
                found = error
            yield number, found


LOCAL = LocalExecutor()


def run_all(pool: Executor, tasks: Sequence[Task[T]]) -> list[T]:
    """What each gave, in their order. Raises what the first that ends with an error raised."""
    results: dict[int, T] = {}
    for number, found in pool.run(tasks):
        if isinstance(found, SpeccompileError):
            raise found
        results[number] = found
    return [results[number] for number in range(len(tasks))]
