"""Choose the type that a training computes in. Without instructions for bfloat16, torch's products in it take many
times as long as in float32, so a step would take minutes."""

import time

import torch

from speccompile.progress import LOGGER
from speccompile.train.processes import Processes

SLOWER = 3.0
"""Cost of bfloat16 products, in float32 ones, from which on a training computes in float32. Measured: 0.2 to 0.3 with
AVX-512 BF16, 1.1 with AVX-512 alone, 22 to 75 with AVX2."""


def computing_precision(asked: str, processes: Processes) -> str:
    """Return "float32" or "bfloat16". All processes make the same call, and the first one's processor decides."""
    if asked == "float32" or processes.device.type != "cpu":
        return asked
    (cost,) = processes.broadcast(bfloat16_cost())
    if cost < SLOWER:
        return asked
    if processes.is_first:
        LOGGER.warning(
            "train.schedule.precision: products in bfloat16 take %.0f times as long as in float32 on this processor: "
            "steps are computed in float32",
            cost,
        )
    return "float32"


def bfloat16_cost() -> float:
    """Return the time of a bfloat16 product of matrices, in float32 ones: the least of five each, in turns."""
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(5):
        for dtype, taken in times.items():
            left, right = torch.ones(128, 256, dtype=dtype), torch.ones(256, 256, dtype=dtype)
            start = time.perf_counter()
            left @ right
            taken.append(time.perf_counter() - start)
    return min(times[torch.bfloat16]) / min(times[torch.float32])
