"""Whether there is room for what a build needs: on the disk, and in memory. A build that has clearly less is refused
before any work; estimates are rough, so one that has a little less may try."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speccompile.errors import BuildError
from speccompile.machine.shortage import lowest_limit, out_of_disk, out_of_memory
from speccompile.machine.system import ADDRESS_SPACE, MemoryLimit, memory_limits
from speccompile.recipe.needs import Needs

CLEARLY_LESS = 0.9
"""Part of what is needed below which there is clearly less."""


@dataclass(frozen=True)
class Room:
    """What there is. disk: bytes that are free in `folder`, the nearest to the output that exists."""

    folder: Path
    disk: int
    limits: tuple[MemoryLimit, ...]

    @property
    def memory(self) -> int:
        """The lowest limit, in bytes."""
        return min(limit.size for limit in self.limits)


def find_room(output: Path) -> Room:
    """What this machine has for a build into `output`."""
    resolved = output.resolve()
    folder = next(each for each in (resolved, *resolved.parents) if each.is_dir())
    return Room(folder, shutil.disk_usage(folder).free, tuple(memory_limits()))


def check_room(needs: Needs, room: Room) -> None:
    """Raise BuildError for the first thing of which there is clearly less than needed."""
    for error in shortages(needs, room, CLEARLY_LESS):
        raise error


def shortages(needs: Needs, room: Room, part: float = 1) -> Iterator[BuildError]:
    """An error for everything of which there is less than a part of what is needed."""
    if room.disk < part * needs.disk:
        yield BuildError(
            f"the disk of {room.folder} has too little room: received {gigabytes(room.disk)} free, "
            f"{_expected_disk(needs)}",
            hint=_MORE_DISK,
        )
    for limit in room.limits:
        if limit.size < part * _needed(limit, needs):
            yield _too_small(limit, needs)


def _too_small(limit: MemoryLimit, needs: Needs) -> BuildError:
    parts = ""
    if limit.kind == ADDRESS_SPACE:
        parts = (
            f": {gigabytes(needs.memory)} of memory, {gigabytes(needs.mapped)} of files that are mapped, and "
            f"{gigabytes(needs.reserved)} for libraries and threads"
        )
    return BuildError(
        f"{limit.name} is too small: received {gigabytes(limit.size)} of {limit.kind}, expected about "
        f"{gigabytes(_needed(limit, needs))}{parts}",
        hint=limit.hint,
    )


def with_figures(error: Exception, needs: Needs, room: Room) -> Exception:
    """An error of a build as it is; where memory or the disk ran out on the way, a BuildError that says how much of it
    is needed."""
    if (words := out_of_memory(error)) is not None:
        limit = lowest_limit()
        return BuildError(
            f"memory ran out: {words}: received {gigabytes(limit.size)} ({limit.name}), expected about "
            f"{gigabytes(_needed(limit, needs))}",
            hint=limit.hint,
        )
    if out_of_disk(error):
        free = shutil.disk_usage(room.folder).free
        return BuildError(
            f"{error}: received {gigabytes(free)} free in {room.folder}, {_expected_disk(needs)}", hint=_MORE_DISK
        )
    return error


def gigabytes(size: float) -> str:
    """In GB, or in MB below one."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


_MORE_DISK = "free some disk space, or give an --output on another disk"


def _expected_disk(needs: Needs) -> str:
    return (
        f"expected about {gigabytes(needs.disk)}: {gigabytes(needs.bundle)} for the bundle and "
        f"{gigabytes(needs.temporary)} for files until it is done"
    )


def _needed(limit: MemoryLimit, needs: Needs) -> int:
    return needs.address_space if limit.kind == ADDRESS_SPACE else needs.memory
