"""Resource check: refuse a build, before any work, that finds less than 90 % of its estimated disk or memory. Estimates
are rough, so a build with a little less may try."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speccompile.bundle.cache import BUNDLES, FOLDER, PART, cache_folder
from speccompile.errors import BuildError
from speccompile.machine.resource_errors import is_disk_full, out_of_memory_message, tightest_memory_limit
from speccompile.machine.system import ADDRESS_SPACE, MemoryLimit, memory_limits
from speccompile.recipe.resource_estimate import ResourceEstimate

REFUSAL_RATIO = 0.9
"""Share of the estimate below which a build is refused."""


@dataclass(frozen=True)
class AvailableResources:
    """Available disk and memory. disk: free bytes at `folder`, the nearest existing ancestor of the output."""

    folder: Path
    disk: int
    limits: tuple[MemoryLimit, ...]

    @property
    def memory(self) -> int:
        """Return the lowest memory limit, in bytes."""
        return min(limit.size for limit in self.limits)


def find_resources(output: Path) -> AvailableResources:
    """Return the resources of this machine for a build into `output`."""
    resolved = output.resolve()
    # An entry of the cache has a name of its own until it is done.
    folder = next(each for each in (resolved, *resolved.parents) if each.is_dir() and each.suffix != PART)
    return AvailableResources(folder, shutil.disk_usage(folder).free, tuple(memory_limits()))


def check_resources(needs: ResourceEstimate, room: AvailableResources) -> None:
    """Raise BuildError for the first resource with less than REFUSAL_RATIO of its estimate."""
    for error in insufficient_resources(needs, room, REFUSAL_RATIO):
        raise error


def insufficient_resources(needs: ResourceEstimate, room: AvailableResources, part: float = 1) -> Iterator[BuildError]:
    """Yield an error for every resource with less than `part` of its estimate."""
    if room.disk < part * needs.disk:
        yield BuildError(
            f"not enough disk space in {room.folder}: received {gigabytes(room.disk)} free, {_expected_disk(needs)}",
            hint=_more_disk(room.folder),
        )
    for limit in room.limits:
        if limit.size < part * _needed(limit, needs):
            yield _too_small(limit, needs)


def _too_small(limit: MemoryLimit, needs: ResourceEstimate) -> BuildError:
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


def with_estimate(error: Exception, needs: ResourceEstimate, room: AvailableResources) -> Exception:
    """Return a build's error unchanged; for an out-of-memory or disk-full error, a BuildError with the estimate."""
    if (words := out_of_memory_message(error)) is not None:
        limit = tightest_memory_limit()
        return BuildError(
            f"memory ran out: {words}: received {gigabytes(limit.size)} ({limit.name}), expected about "
            f"{gigabytes(_needed(limit, needs))}",
            hint=limit.hint,
        )
    if is_disk_full(error):
        free = shutil.disk_usage(room.folder).free
        return BuildError(
            f"{error}: received {gigabytes(free)} free in {room.folder}, {_expected_disk(needs)}",
            hint=_more_disk(room.folder),
        )
    return error


def gigabytes(size: float) -> str:
    """Format bytes in GB, or in MB below 1 GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def _more_disk(folder: Path) -> str:
    """Return the hint on a full disk. folder: of the output; the bundle of a model without a recipe is in the cache."""
    if folder.is_relative_to(cache_folder(BUNDLES).resolve()):
        return (
            f"free some disk space, set ${FOLDER} to a folder on another disk, or give `speccompile build` an --output"
        )
    return "free some disk space, or give an --output (output=..) on another disk"


def _expected_disk(needs: ResourceEstimate) -> str:
    return (
        f"expected about {gigabytes(needs.disk)}: {gigabytes(needs.bundle)} for the bundle and "
        f"{gigabytes(needs.temporary)} for files until it is done"
    )


def _needed(limit: MemoryLimit, needs: ResourceEstimate) -> int:
    return needs.address_space if limit.kind == ADDRESS_SPACE else needs.memory
