"""Things together, as many as a size allows."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Each = TypeVar("Each")


def batched_by_size(every: Iterable[Each], size: Callable[[Each], int], most: int) -> Iterator[list[Each]]:
    """Lists of them, in their order, whose sizes add up to `most` or a little more; the last one may have less."""
    group, total = list[Each](), 0
    for each in every:
        group.append(each)
        total += size(each)
        if total >= most:
            yield group
            group, total = [], 0
    if group:
        yield group
