"""What the loop needs of an engine: buffers by name and shape, and graphs bound to them once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.contract import Graph
from speccompile.errors import EngineError
from speccompile.machine.system import process_sizes, proportional_set_size

Array = NDArray[Any]
Run = Callable[[], None]


class Engine(Protocol):
    """Graphs over named buffers. A buffer exists once for every concrete shape: equal names and shapes share memory.

    What has a line for each row of a batch exists with all lines, and a run over some rows works on theirs, where they
    lie. Links and optional outputs alone are scratch of a run: they exist with as many lines as it has rows, shapes of
    about one size share memory, and nobody finds there what an earlier run wrote at another shape.
    """

    @property
    def threads(self) -> int | None:
        """Threads of the processor that a graph runs on; None where the library knows of none."""
        ...

    @property
    def supports_batch_slices(self) -> bool:
        """Whether a run may be over some rows of the batch alone."""
        ...

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> Array:
        """A host view of a buffer: what is written here the graphs read, and the other way round. shape: with all rows
        of the batch, of links and optional outputs with those of a run.

        States and links of an engine on a device are the exception: they never leave the device by themselves, and what
        is returned is a read-only copy of the moment. bfloat16, which numpy does not have, is seen as uint16.
        """
        ...

    def write_state(self, buffer: str, values: Array) -> None:
        """Write a state, of the dtype and shape that it has there."""
        ...

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        """Bind a graph to its buffers at these widths, the batch by default the bundle's, and return what runs it, to
        its end.

        `optional` names the optional outputs that are wanted; they are found under their names with `array`. rows: of
        the batch, one or more in a row, all by default. The run reads and writes no line of another row. Raises
        EngineError for rows that the batch does not have, and for some rows where there are no ranges.
        """
        ...

    def has(self, graph: str) -> bool:
        """Whether the bundle has this graph."""
        ...

    def address(self, buffer: str) -> int:
        """Where a state buffer lies in memory, the host's or the device's. It never moves."""
        ...

    def memory(self) -> dict[str, int]:
        """What this process holds of the machine's memory, not the device's: see `process_memory`."""
        ...


def process_memory() -> dict[str, int]:
    """Memory of this process in bytes; empty where the kernel does not tell.

    resident: all that is in memory, a page that is mapped several times as often; proportional: of such a page, its
    part; anonymous: what is the process's own; mapped: pages of files, which processes share and the system takes back
    when it needs to; peak: the most that was resident.
    """
    names = {"resident": "VmRSS", "anonymous": "RssAnon", "mapped": "RssFile", "peak": "VmHWM"}
    sizes = process_sizes()
    found = {name: sizes[theirs] for name, theirs in names.items() if theirs in sizes}
    proportional = proportional_set_size()
    return found if proportional is None else found | {"proportional": proportional}


def eager_graphs(graphs: Collection[str]) -> list[str]:
    """The graphs that speculative rounds run; the others wait for their first use.

    A fused bundle has `verify` beside `step`, for autoregressive decoding alone: opening both takes twice as long, and
    twice the memory where weights are not mapped.
    """
    return ["step"] if "step" in graphs else list(graphs)


def check_rows(rows: range | None, batch: int, *, has_ranges: bool) -> range:
    """The rows of a run, all by default, of an engine for `batch` of them. Raises EngineError as `Engine.bind`."""
    if rows is None:
        return range(batch)
    if not 0 <= rows.start < rows.stop <= batch or rows.step != 1:
        raise EngineError(
            f"a run over {rows}: expected a range of one or more of the {batch} rows of the batch",
            hint="cache.batch_size in the recipe says how many rows a bundle has",
        )
    if not has_ranges and len(rows) != batch:
        raise EngineError(
            f"a run over {rows}: this engine runs all {batch} rows of the batch at once",
            hint="see `has_ranges`: engines on a GPU have none",
        )
    return rows


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a contract's dtype; uint16 for bfloat16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def buffer_dtypes(graphs: Iterable[Graph]) -> dict[str, str]:
    """Buffer -> the contract's dtype."""
    return {tensor.buffer: tensor.dtype for graph in graphs for tensor in (*graph.inputs, *graph.outputs)}


SCRATCH = ("link", "optional")
"""Roles of what no run finds as another one left it."""


def scratch_size(size: int) -> int:
    """As many bytes as scratch of about this size shares. A prompt's last part has a width of its own; memory for each
    width would be hundreds of times that of the largest."""
    return 1 << max(0, size - 1).bit_length()


def scratch_buffers(graphs: Iterable[Graph]) -> set[str]:
    """Buffers that are scratch of a run."""
    tensors = (tensor for graph in graphs for tensor in (*graph.inputs, *graph.outputs))
    return {tensor.buffer for tensor in tensors if tensor.role in SCRATCH}


def aligned_zeros(shape: tuple[int, ...], dtype: str) -> Array:
    """A zeroed array whose memory starts at a multiple of 64 bytes, as vector instructions like it."""
    wanted = numpy_dtype(dtype)
    size = int(np.prod(shape)) * wanted.itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(wanted).reshape(shape)
