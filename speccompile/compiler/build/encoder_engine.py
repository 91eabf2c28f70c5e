"""The encoder of pictures for TensorRT: its lowered graph, its contract, and the sizes that its engine takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.media import ENCODE_IMAGE, IMAGES_FOLDER, PATCHES, ROWS
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.image_encoder import EncoderInputs, build_encoder, compare_encoder
from speccompile.compiler.engines import Settings
from speccompile.compiler.engines.settings import make_profile
from speccompile.compiler.lower import static_cache
from speccompile.compiler.lower.export_encoder import ENCODER_FILE
from speccompile.contract import DTYPES, Graph, Tensor
from speccompile.plan.plan import EnginePlan
from speccompile.progress import log_step
from speccompile.runtime.images.families import FAMILIES

TENSORRT_FILE = f"{IMAGES_FOLDER}/{ENCODE_IMAGE}.tensorrt.onnx"
"""The lowered graph, which reads the weights of the traced one."""
USUAL_ROWS = 1024
"""Rows of a picture for which engines over patches are tuned, if one can have so many."""


@dataclass(frozen=True)
class EncoderEngine:
    """The encoder as TensorRT's engines have it. widths: the smallest, usual and largest sizes of one run."""

    graph: Graph
    widths: tuple[dict[str, int], ...]

    def settings(self, planned: EnginePlan) -> Settings:
        """Return the builder's settings: float32 in engines of every precision."""
        profile = make_profile(self.graph, self.widths)
        return Settings(planned.backend, planned.compute_capability, {}, profile)


def build_encoders(
    inputs: EncoderInputs | None, longest: int | None, folder: Path, steps: CachedSteps, *, prove: bool
) -> tuple[EncoderEngine | None, list[dict[str, Any]]]:
    """Write the encoder of a bundle, and its graph for TensorRT's engines. Return the latter and the rows of the proof.
    longest: tokens of a text in engines of TensorRT, None without any. Raise as `build_encoder`."""
    if inputs is None:
        return None, []
    rows = build_encoder(inputs, folder, steps, prove=prove)
    if longest is None:
        return None, rows
    encoder, found = _for_tensorrt(inputs, folder, steps, longest, prove=prove)
    return encoder, rows + found


def encoder_files(inputs: EncoderInputs | None, entries: Iterable[EngineEntry]) -> set[str]:
    """Return the graph of the encoder that engines on the processor share, if there are any and pictures are seen."""
    return {ENCODER_FILE} if inputs is not None and any(entry.provider == "cpu" for entry in entries) else set()


def _for_tensorrt(
    inputs: EncoderInputs, folder: Path, steps: CachedSteps, max_length: int, *, prove: bool
) -> tuple[EncoderEngine, list[dict[str, Any]]]:
    """Write the encoder's graph as TensorRT reads it, and return it with the rows of its proof: ONNX Runtime runs it
    on the processor. max_length: no picture of a prompt has more rows. Raise ProofError as `compare_encoder`."""

    def lower() -> dict[str, Any]:
        model = ir.load(folder / ENCODER_FILE)
        static_cache.lower(model)
        ir.save(model, folder / TENSORRT_FILE)
        return {}

    def compare() -> dict[str, Any]:
        with log_step(f"proving {ENCODE_IMAGE} for tensorrt against transformers"):
            return compare_encoder(inputs, folder / TENSORRT_FILE) | {"level": "tensorrt against eager"}

    steps.files(f"lowering {ENCODE_IMAGE} for tensorrt", inputs, folder, [TENSORRT_FILE], lower)
    rows = [steps.result(f"proving {ENCODE_IMAGE} for tensorrt", inputs, compare)] if prove else []
    family, patches = FAMILIES[inputs.images.family](inputs.images), inputs.images.settings.get("merge", 1) ** 2
    most = min(family.most_rows(), max_length)
    widths = tuple({PATCHES: count * patches, ROWS: count} for count in (1, min(USUAL_ROWS, most), most))
    return EncoderEngine(encoder_contract(folder / TENSORRT_FILE), widths), rows


def encoder_contract(file: Path) -> Graph:
    """Return the contract of an encoder's graph: sizes that vary are patches of the inputs and rows of the output."""
    graph = onnx.load(file, load_external_data=False).graph
    return Graph(
        ENCODE_IMAGE,
        tuple(_tensor(each, PATCHES) for each in graph.input), tuple(_tensor(each, ROWS) for each in graph.output),
    )  # fmt: skip


def _tensor(value: onnx.ValueInfoProto, varying: str) -> Tensor:
    kind = value.type.tensor_type
    dtype = next(name for name, each in DTYPES.items() if each.onnx == kind.elem_type)
    shape = tuple(size.dim_value if size.HasField("dim_value") else varying for size in kind.shape.dim)
    return Tensor(value.name, dtype, shape, value.name, "io")
