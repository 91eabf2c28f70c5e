"""Parts of one piece of work on all cores, by threads."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from speccompile.machine.system import available_cores

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
    """Return the results of all parts, in their order, with a thread for each core that this process may use.

    For functions that spend their time in numpy or in reading files, where other threads may run. The error of the
    first part that fails propagates, and parts that have not begun are not computed.
    """
    given = list(parts)
    threads = min(available_cores(), len(given))
    if threads < 2:
        return [function(part) for part in given]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, given))
