"""Tracing of graphs: load, probe, trace, write and release, one model after the other."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.bundle.sources import ENCODED_COMPONENTS
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.modules import VerifyInputs, load_decoder, make_drafter, make_verify
from speccompile.compiler.lower.export import Exported, export_draft, export_encoder, export_verify
from speccompile.compiler.lower.files import GRAPHS, write_neutral
from speccompile.compiler.lower.signatures import DraftWidth, ring_buffers
from speccompile.compiler.models.encode_source import ALONE, EncodeSource
from speccompile.compiler.models.load import WEIGHT_SUFFIXES, ModelFiles
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.weights.graph import link_file
from speccompile.contract import ENCODE_DRAFT_SOURCE, ENCODE_SOURCE, Graph
from speccompile.drafters.context import DraftInputs
from speccompile.plan.head import HeadPlan
from speccompile.progress import log_step, progress_counter

WEIGHTS = {
    "verify": "target.traced.weights",
    "draft": "drafter.traced.weights",
    ENCODE_SOURCE: "encoder.traced.weights",
    ENCODE_DRAFT_SOURCE: "draft_encoder.traced.weights",
}
"""Graph -> the file of its constants that do not stay in a checkpoint."""


@dataclass(frozen=True)
class TracedDraft:
    """Facts about a traced drafter. longest_window: its longest attention window, 0 for none."""

    graph: Graph
    width: DraftWidth
    catch_up: int
    longest_window: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "graph": self.graph.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TracedDraft":
        width = DraftWidth(**data["width"])
        return cls(Graph.from_json(data["graph"]), width, data["catch_up"], data["longest_window"])


def link_checkpoints(models: Iterable[ModelFiles | HeadPlan], folder: Path) -> None:
    """Link the weight files of all models into `folder` under names of their content."""
    (folder / GRAPHS).mkdir(exist_ok=True)
    files = sorted({m.folder / file for m in models for file in m.files if file.suffix in WEIGHT_SUFFIXES})
    sizes = sum(file.stat().st_size for file in files)
    with (
        log_step("reading what the checkpoints are"),
        progress_counter("reading the checkpoints", sizes, "bytes") as advance,
    ):
        for file in files:
            link_file(file, folder / GRAPHS, advance)


def trace_draft(inputs: DraftInputs, folder: Path, steps: CachedSteps) -> TracedDraft:
    """Trace the drafter into `folder`."""

    def make() -> dict[str, Any]:
        drafter, head = make_drafter(inputs, steps), inputs.drafter.head
        n_features = len(drafter.taps) * head.hidden_size if head else 0
        graph = _trace("draft", lambda: export_draft(drafter, inputs.shape.batch_size, n_features), folder)
        decoders = (module for module in drafter.modules() if isinstance(module, Decoder))
        windows = [layer.window for decoder in decoders for layer in decoder.layers]
        windows += head.layers.windows if head and head.layers else ()
        return TracedDraft(graph, DraftWidth.of(drafter), drafter.catch_up, max(windows, default=0)).to_json()

    return TracedDraft.from_json(_cached("draft", inputs, folder, steps, make))


class TracedVerify(NamedTuple):
    """Facts about the traced verification. longest_window: of the target's attention; rings: see `Manifest`."""

    graph: Graph
    longest_window: int
    rings: dict[str, int]


def trace_verify(inputs: VerifyInputs, folder: Path, steps: CachedSteps) -> TracedVerify:
    """Trace the verification into `folder`."""

    def make() -> dict[str, Any]:
        decoder = load_decoder(inputs.target, "target", inputs.shape, steps)
        verify, width = make_verify(inputs, decoder), inputs.drafts.width if inputs.drafts else None
        kind = {"is_sampling": inputs.is_sampling, "constraints": inputs.constraints}
        graph = _trace("verify", lambda: export_verify(verify, width, **kind), folder)
        rings = ring_buffers(graph, decoder.rings())
        window = max(layer.window for layer in decoder.layers)
        return {"graph": graph.to_json(), "window": window, "rings": rings}

    found = _cached("verify", inputs, folder, steps, make)
    return TracedVerify(Graph.from_json(found["graph"]), found["window"], found["rings"])


@dataclass(frozen=True)
class SourceTraceInputs:
    """Inputs of the graph that encodes a source. model: of which it is the encoder; shape: of its decoder's caches;
    sharing: see `EncodeSource`."""

    model: ModelFiles
    shape: CacheShape
    sharing: str = ALONE


def trace_encoder(name: str, inputs: SourceTraceInputs, folder: Path, steps: CachedSteps) -> Graph:
    """Trace the graph of this name that encodes a source into `folder`. Return the contract."""

    def make() -> dict[str, Any]:
        decoder = load_decoder(inputs.model, ENCODED_COMPONENTS[name], inputs.shape, steps)
        graph = _trace(name, lambda: export_encoder(name, EncodeSource(decoder, inputs.sharing)), folder)
        return {"graph": graph.to_json()}

    return Graph.from_json(_cached(name, inputs, folder, steps, make)["graph"])


def _cached(
    name: str,
    inputs: DraftInputs | VerifyInputs | SourceTraceInputs,
    folder: Path,
    steps: CachedSteps,
    make: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    files = [f"{GRAPHS}/{name}.neutral.onnx", f"{GRAPHS}/{WEIGHTS[name]}"]
    return steps.files(f"tracing {name}", inputs, folder, files, make)


def _trace(name: str, export: Callable[[], Exported], folder: Path) -> Graph:
    with log_step(f"tracing {name}"):
        exported = export()
    with log_step(f"writing the neutral {name} graph"):
        write_neutral(exported.model, exported.graph, folder, WEIGHTS[name], in_place=True)
    return exported.graph
