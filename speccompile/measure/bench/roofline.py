"""Roofline of decoding: the bytes that a token reads, and the memory bandwidth of this machine.

Decoding reads every weight in every round and computes little with it. The memory's bandwidth bounds it (the roofline
of Williams et al. 2009, far left of its ridge). Speculation reads more bytes per round and fewer per token.
"""

from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from time import perf_counter

import numpy as np

from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.contract import Graph, with_fixed_batch
from speccompile.machine.system import physical_memory
from speccompile.measure.bench.mode import ModeStatistics
from speccompile.measure.bench.weights import WeightReads, weight_reads
from speccompile.progress import log_step
from speccompile.runtime.devices.engine import numpy_dtype

PASSES = 6
SMALLEST, CACHES, LARGEST = 256 << 20, 4, 2 << 30
"""Size of the buffer that is read: `CACHES` times the last-level cache, between `SMALLEST` and `LARGEST` bytes."""


@dataclass(frozen=True)
class Bandwidth:
    """Read bandwidth of these threads over a buffer larger than the processor's caches: the best of several passes."""

    bytes_per_second: float
    threads: int
    buffer_bytes: int


@dataclass(frozen=True)
class Traffic:
    """Bytes that one decoding mode reads, and `share`: its bytes per second over the measured bandwidth.

    weight_bytes: weights count once per node that reads them, so an unrolled drafter's once per draft step; embedding
    tables count per looked-up row. cache_bytes: committed tokens, once per pass over them. Both are means over all
    rounds, with and without drafts. Data in the processor's caches is not read from memory: for small models `share`
    may exceed one.
    """

    weight_bytes: int
    cache_bytes: int
    bytes_per_token: float
    share: float | None


@dataclass(frozen=True)
class Roofline:
    """Traffic of both modes at `context` committed tokens. Without a drafter `speculative` is None."""

    bandwidth: Bandwidth
    context: int
    speculative: Traffic | None
    autoregressive: Traffic


@dataclass(frozen=True)
class MemoryReads:
    """Read bandwidth of the memory, and the bytes of weights that one run of each graph reads."""

    bandwidth: Bandwidth
    weights: dict[str, WeightReads]


def measure_reading(folder: Path, entry: EngineEntry, threads: int) -> MemoryReads | None:
    """Measure the bandwidth and the weights of the bundle in `folder`; None unless the engine is ONNX on the CPU."""
    if entry.provider != "cpu":
        return None
    return MemoryReads(measure_bandwidth(threads), graph_weights(folder, entry))


def graph_weights(folder: Path, entry: EngineEntry) -> dict[str, WeightReads]:
    """Return graph -> bytes of weights that one run reads."""
    return {name: weight_reads(folder / file) for name, file in entry.files.items()}


def make_roofline(
    reading: MemoryReads,
    manifest: Manifest,
    graphs: Sequence[Graph],
    context: int,
    speculative: ModeStatistics | None,
    autoregressive: ModeStatistics,
) -> Roofline:
    """Return the roofline. graphs: the engine's. context: committed tokens. autoregressive: rounds without drafts."""
    described = {graph.name: graph for graph in graphs}

    def traffic(mode: ModeStatistics, window: int) -> Traffic:
        runs = _runs(described, mode.drafting_rounds / mode.rounds if mode.rounds else 0.0)
        weights = round(
            sum(n * _weight_bytes(manifest, name, reading.weights[name], window) for name, n in runs.items())
        )
        caches = round(sum(n * _cache_bytes(manifest, described[name], context) for name, n in runs.items()))
        per_token, rate = (weights + caches) / (mode.mean_accepted or 1), mode.decode_tokens_per_second
        share = per_token * rate / reading.bandwidth.bytes_per_second if rate else None
        return Traffic(weights, caches, per_token, share)

    ours = traffic(speculative, manifest.tokens + 1) if speculative else None
    return Roofline(reading.bandwidth, context, ours, traffic(autoregressive, 1))


def _runs(graphs: Container[str], drafting: float) -> dict[str, float]:
    """Return graph -> mean number of runs per round. drafting: share of rounds that draft.

    Drafts from the host have no graph.
    """
    if drafting and "step" in graphs:
        return {"step": drafting, "verify": 1 - drafting}
    return {"verify": 1.0, "draft": drafting} if drafting and "draft" in graphs else {"verify": 1.0}


def _weight_bytes(manifest: Manifest, graph: str, reads: WeightReads, window: int) -> int:
    """Return the weight bytes of one run. A table counts a row per token of the window or the drafter's catch-up."""
    looked_up = manifest.catch_up if graph == "draft" else window
    return reads.whole + reads.row * looked_up * manifest.batch_size


def _cache_bytes(manifest: Manifest, graph: Graph, context: int) -> int:
    """Return the bytes of the committed tokens in the caches that the graph reads, of a ring those of its window; a
    drafter's count once per depth."""
    found = 0
    for tensor in with_fixed_batch(graph, manifest.batch_size).inputs:
        if tensor.role == "state" and len(tensor.shape) == 4 and tensor.dtype.startswith(("float", "bfloat", "int8")):
            batch, heads, _, size = (int(number) for number in tensor.shape)
            passes = manifest.depth if tensor.buffer.startswith("drafter.") else 1
            tokens = min(context, manifest.rings.get(tensor.buffer, context))
            found += tokens * passes * prod((batch, heads, size)) * numpy_dtype(tensor.dtype).itemsize
    return found


def measure_bandwidth(threads: int) -> Bandwidth:
    """Measure the bandwidth of the memory, over a buffer that no cache holds."""
    size = _buffer_bytes()
    with log_step("bandwidth of the memory"):
        return Bandwidth(read_bandwidth(threads, size), threads, size)


def read_bandwidth(threads: int, size: int) -> float:
    """Return the bytes per second of reading a buffer of `size` bytes, the best of several passes.

    Each thread takes the maximum of its part, which costs less than the read."""
    with ThreadPoolExecutor(threads) as pool:
        parts = np.array_split(np.ones(size // 4, np.int32), threads)
        best = float("inf")
        for _ in range(PASSES):
            start = perf_counter()
            list(pool.map(np.max, parts))
            best = min(best, perf_counter() - start)
    return size / best


def _buffer_bytes() -> int:
    return max(SMALLEST, min(LARGEST, CACHES * _last_level_cache(), physical_memory() // 8))


def _last_level_cache() -> int:
    """Return the bytes of the last-level cache, or 0 if the system does not report them. Linux only."""
    units = {"K": 10, "M": 20}
    texts = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(text[:-1]) << units[text[-1]] for text in texts if text[-1:] in units), default=0)
