"""Interface of an engine for the decode loop: buffers by name and shape, and graphs bound to them once."""

import mmap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.contract import FP8, Graph
from speccompile.errors import EngineError
from speccompile.machine.system import process_sizes, proportional_set_size

Array = NDArray[Any]
Run = Callable[[], None]


class Engine(Protocol):
    """Graphs over named buffers. A buffer exists once for every concrete shape: equal names and shapes share memory.

    A buffer with a line for each batch slot exists with all lines, and a run over a slice works on its lines in place.
    Only links and optional outputs are scratch of a run: they have one line for each slot of the run, shapes of about
    one size share memory, and their content does not outlive a run of another shape.
    """

    @property
    def threads(self) -> int | None:
        """Return the processor threads that a graph runs on; None if the library has no such number."""
        ...

    @property
    def supports_batch_slices(self) -> bool:
        """Return whether a run may cover a slice of the batch slots."""
        ...

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> Array:
        """Return a host view of a buffer: graphs read values written here, and it shows their outputs. shape: with
        all batch slots; for links and optional outputs with those of a run.

        States and links of an engine on a device are an exception: they stay on the device, and the result is a
        read-only copy of the present content. bfloat16, which numpy lacks, appears as uint16.
        """
        ...

    def write_state(self, buffer: str, values: Array) -> None:
        """Write a state, of the dtype and shape that it has in the engine."""
        ...

    def bind(
        self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = (), rows: range | None = None
    ) -> Run:
        """Bind a graph to its buffers at these widths, with the bundle's batch size by default, and return a function
        that runs it to its end.

        `optional` names the requested optional outputs; `host_view` returns them. rows: one or more consecutive batch
        slots, by default all. The run touches no line of another slot. Raise EngineError for slots that the batch does
        not have, and for a slice if the engine does not support slices.
        """
        ...

    def has(self, graph: str) -> bool:
        """Return whether the bundle has this graph."""
        ...

    def address(self, buffer: str) -> int:
        """Return the address of a state buffer in the host's or the device's memory. It never moves."""
        ...

    def memory(self) -> dict[str, int]:
        """Return this process's use of the machine's memory, without the device's: see `process_memory`."""
        ...


def process_memory() -> dict[str, int]:
    """Return the memory of this process in bytes; empty if the kernel does not report it.

    resident: all pages in memory, shared ones counted fully; proportional: shared pages counted with their share;
    anonymous: private memory; mapped: pages of files, which processes share and the system reclaims when needed; peak:
    the maximum of resident.
    """
    names = {"resident": "VmRSS", "anonymous": "RssAnon", "mapped": "RssFile", "peak": "VmHWM"}
    sizes = process_sizes()
    found = {name: sizes[theirs] for name, theirs in names.items() if theirs in sizes}
    proportional = proportional_set_size()
    return found if proportional is None else found | {"proportional": proportional}


def eager_graphs(graphs: Collection[str]) -> list[str]:
    """Return the graphs of speculative rounds; other graphs are opened at their first use.

    A fused bundle has `verify` in addition to `step`, for autoregressive decoding alone: opening both takes twice as
    long, and twice the memory if weights are not mapped.
    """
    return ["step"] if "step" in graphs else list(graphs)


def check_rows(rows: range | None, batch: int, *, has_ranges: bool) -> range:
    """Return the batch slots of a run, by default all, for an engine with `batch` slots. Raise EngineError as
    `Engine.bind`."""
    if rows is None:
        return range(batch)
    if not 0 <= rows.start < rows.stop <= batch or rows.step != 1:
        raise EngineError(
            f"a run over {rows}: expected a range of one or more of the {batch} batch slots",
            hint="cache.batch_size in the recipe sets the number of batch slots",
        )
    if not has_ranges and len(rows) != batch:
        raise EngineError(
            f"a run over {rows}: this engine runs all {batch} batch slots at once",
            hint="see `has_ranges`: engines on a GPU have none",
        )
    return rows


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the numpy dtype of a contract's dtype; uint16 for bfloat16, uint8 for fp8."""
    return np.dtype({"bfloat16": "uint16", FP8: "uint8"}.get(dtype, dtype))


def buffer_dtypes(graphs: Iterable[Graph]) -> dict[str, str]:
    """Return buffer -> the contract's dtype."""
    return {tensor.buffer: tensor.dtype for graph in graphs for tensor in (*graph.inputs, *graph.outputs)}


SCRATCH = ("link", "optional")
"""Roles of tensors whose content does not outlive a run."""


def scratch_size(size: int) -> int:
    """Return the bytes of shared scratch memory for this size. The last chunk of a prompt may have any width; separate
    memory for each width would take hundreds of times the largest."""
    return 1 << max(0, size - 1).bit_length()


def scratch_buffers(graphs: Iterable[Graph]) -> set[str]:
    """Return the names of buffers that are scratch of a run."""
    tensors = (tensor for graph in graphs for tensor in (*graph.inputs, *graph.outputs))
    return {tensor.buffer for tensor in tensors if tensor.role in SCRATCH}


_LARGE = 1 << 20
"""Bytes from which memory is the system's own."""


def aligned_zeros(shape: tuple[int, ...], dtype: str) -> Array:
    """Return a zeroed array whose memory starts at a multiple of 64 bytes, which suits vector instructions.

    A large one takes pages as they are written: caches fill what their text fills. numpy's zeros do so as well in a
    young process. In one that has freed arrays as large they take that memory, and zero all of it.
    """
    wanted = numpy_dtype(dtype)
    size = int(np.prod(shape)) * wanted.itemsize
    if size >= _LARGE:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return np.frombuffer(mmap.mmap(-1, size, flags), np.uint8).view(wanted).reshape(shape)
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(wanted).reshape(shape)
