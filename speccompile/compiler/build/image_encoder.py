"""The image encoder of a bundle: traced, written, and compared with transformers' own features."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile.bundle.media import ENCODE_IMAGE, IMAGES_FOLDER, PROOF_SHAPES
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.lower.export_encoder import (
    ENCODER_FILE,
    TRACED_FILE,
    TRACED_WEIGHTS,
    WEIGHTS_FILE,
    export_encoder,
    lower_encoder,
)
from speccompile.compiler.models.image_encoder import ENCODERS, load_whole
from speccompile.compiler.models.image_inputs import image_features
from speccompile.compiler.models.load import ModelFiles
from speccompile.errors import ProofError
from speccompile.machine.formats.image_settings import ENCODER_PRECISION, ImageSettings
from speccompile.progress import log_step
from speccompile.runtime.images.families import FAMILIES

TOLERANCE = 1e-4
"""Largest difference of the encoder's rows from transformers', relative to the largest. float32."""
_PICTURES = 2


@dataclass(frozen=True)
class EncoderInputs:
    """Inputs of the image encoder."""

    target: ModelFiles
    images: ImageSettings


def build_encoder(inputs: EncoderInputs, folder: Path, steps: CachedSteps, *, prove: bool) -> list[dict[str, Any]]:
    """Write the encoder of a bundle, and return the rows of its proof. The proof is of its float32 graph; the loss by
    another precision is measured by `prove_images`. Raise ProofError if it gives other rows than transformers,
    UnsupportedModelError and CheckpointError as `export_encoder` and `load_whole`."""
    word = inputs.images.precision
    is_final = word == ENCODER_PRECISION
    traced = EncoderInputs(inputs.target, replace(inputs.images, precision=ENCODER_PRECISION))
    final = [ENCODER_FILE, f"{IMAGES_FOLDER}/{WEIGHTS_FILE}"]
    files = final if is_final else [TRACED_FILE, f"{IMAGES_FOLDER}/{TRACED_WEIGHTS}"]

    def make() -> dict[str, Any]:
        with log_step(f"tracing {ENCODE_IMAGE}"):
            encoder = ENCODERS[inputs.images.family](load_whole(inputs.target.folder), inputs.images)
            export_encoder(encoder, encoder.example(), folder, encoder.dynamic(), is_final=is_final)
        return {}

    def compare() -> dict[str, Any]:
        with log_step(f"proving {ENCODE_IMAGE} against transformers"):
            return compare_encoder(traced, folder / files[0])

    def lower() -> dict[str, Any]:
        with log_step(f"writing {ENCODE_IMAGE} in {word}"):
            lower_encoder(folder, word)
        return {}

    steps.files(f"tracing {files[0]}", traced, folder, files, make)
    free_memory()
    rows = [steps.result(f"proving {ENCODE_IMAGE} against transformers", traced, compare)] if prove else []
    if not is_final:
        steps.files(f"writing {ENCODE_IMAGE} in {word}", inputs, folder, final, lower)
        for file in files:
            (folder / file).unlink(missing_ok=True)
    free_memory()
    return rows


def random_picture(height: int, width: int) -> NDArray[np.uint8]:
    """Return a picture of noise, uint8 [height, width, 3], the same for the same size."""
    return np.random.default_rng([height, width]).integers(0, 256, (height, width, 3), np.uint8)


def compare_encoder(inputs: EncoderInputs, file: Path) -> dict[str, Any]:
    """Compare the rows of an encoder's float32 graph with transformers', and return the row of the proof. Raise
    ProofError."""
    images, family = inputs.images, FAMILIES[inputs.images.family](inputs.images)
    shown = [random_picture(*shape) for shape in PROOF_SHAPES[:_PICTURES]]
    expected = image_features(load_whole(inputs.target.folder), family, shown).numpy()
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = np.concatenate([
        family.joined([session.run(None, run)[0] for run in family.runs(each)], family.grid(*each.shape[:2]))
        for each in shown
    ])  # fmt: skip
    wanted = (sum(family.n_rows(family.grid(*each.shape[:2])) for each in shown), images.width)
    if found.shape != wanted or expected.shape != wanted:
        raise ProofError(
            f"{ENCODE_IMAGE}: received rows of shape {list(found.shape)}, transformers' are {list(expected.shape)}, "
            f"expected {list(wanted)} by the image processor",
            hint="check that preprocessor_config.json belongs to these weights",
        )
    largest, difference = float(np.abs(expected).max()), float(np.abs(found - expected).max())
    if not difference <= TOLERANCE * max(largest, 1.0):
        raise ProofError(
            f"{ENCODE_IMAGE}: differs by {difference:.3g}, more than {TOLERANCE} of the largest value {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
    return {"graph": ENCODE_IMAGE, "level": "graph against eager", "values": expected.size, "tolerance": TOLERANCE}
