"""Group items by total size."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Each = TypeVar("Each")


def batched_by_size(every: Iterable[Each], size: Callable[[Each], int], most: int) -> Iterator[list[Each]]:
    """Yield consecutive lists of items. Close a list when its total size reaches `most`; the last may be smaller."""
    group, total = list[Each](), 0
    for each in every:
        group.append(each)
        total += size(each)
        if total >= most:
            yield group
            group, total = [], 0
    if group:
        yield group
