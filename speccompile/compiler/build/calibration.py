"""Ranges of activations, measured on the recipe's prompts, for precisions that quantize them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.lower.files import Ranges, neutral_file
from speccompile.compiler.lower.lowering_targets import WeightFormat
from speccompile.compiler.lower.quantize import ACTIVATIONS, calibrate
from speccompile.contract import Graph
from speccompile.plan.plan import EnginePlan
from speccompile.progress import log_step


@dataclass(frozen=True)
class CalibrationInputs:
    """Inputs of calibrated ranges. files: the graph, and the one that runs before it; prompts: token ids."""

    files: GraphFiles
    prompts: list[list[int]]


def is_calibrated(engines: Iterable[EnginePlan]) -> bool:
    """Return whether any engine needs the prompts for its scales."""
    return any(word in ACTIVATIONS for engine in engines for word in engine.precision.words().values())


def calibrated_ranges(
    graph: Graph, numbers: WeightFormat, folder: Path, prompts: list[list[int]], verify: Graph, steps: CachedSteps
) -> Ranges | None:
    """Return tensor name -> smallest and largest value over the prompts; None if the precision needs no ranges. verify:
    the graph that runs before a drafter that reads the target."""
    if numbers.word not in ACTIVATIONS:
        return None
    title = f"calibrating {graph.name} on {len(prompts)} prompts"
    made = {tensor.buffer for tensor in verify.outputs if tensor.role in ("link", "state")}
    reads = graph != verify and any(tensor.buffer in made for tensor in graph.inputs)
    before = (folder / neutral_file(verify), verify) if reads else None

    def find() -> list[tuple[str, float, float]]:
        with log_step(title):
            found = calibrate(folder / neutral_file(graph), graph, prompts, before)
        return [(name, *bounds) for name, bounds in found.items()]

    files = GraphFiles(folder, tuple(map(neutral_file, (graph, verify) if reads else (graph,))))
    return {name: (low, high) for name, low, high in steps.result(title, CalibrationInputs(files, prompts), find)}
