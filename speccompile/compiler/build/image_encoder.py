"""The image encoder of a bundle: traced, written, and compared with transformers' own features."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

from speccompile.bundle.media import ENCODE_IMAGE, IMAGES_FOLDER, PIXELS
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.lower.export_encoder import ENCODER_FILE, WEIGHTS_FILE, export_encoder
from speccompile.compiler.models.image_encoder import ENCODERS, load_whole, tile_features
from speccompile.compiler.models.load import ModelFiles
from speccompile.errors import ProofError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.progress import log_step

TOLERANCE = 1e-4
"""Largest difference of the encoder's rows from transformers', relative to the largest. float32."""
_TILES = 2


@dataclass(frozen=True)
class EncoderInputs:
    """Inputs of the image encoder."""

    target: ModelFiles
    images: ImageSettings


def build_encoder(inputs: EncoderInputs, folder: Path, steps: CachedSteps, *, prove: bool) -> list[dict[str, Any]]:
    """Write the encoder of a bundle, and return the rows of its proof. Raise ProofError if it gives other rows than
    transformers, UnsupportedModelError and CheckpointError as `export_encoder` and `load_whole`."""

    def make() -> dict[str, Any]:
        with log_step(f"tracing {ENCODE_IMAGE}"):
            whole = load_whole(inputs.target.folder)
            export_encoder(ENCODERS[inputs.images.family](whole, inputs.images.tile), inputs.images.tile, folder)
        return {}

    def compare() -> dict[str, Any]:
        with log_step(f"proving {ENCODE_IMAGE} against transformers"):
            return _compare(inputs, folder)

    files = [ENCODER_FILE, f"{IMAGES_FOLDER}/{WEIGHTS_FILE}"]
    steps.files(f"tracing {ENCODE_IMAGE}", inputs, folder, files, make)
    free_memory()
    if not prove:
        return []
    row = steps.result(f"proving {ENCODE_IMAGE} against transformers", inputs, compare)
    free_memory()
    return [row]


def _compare(inputs: EncoderInputs, folder: Path) -> dict[str, Any]:
    images = inputs.images
    pixels = np.random.default_rng(0).standard_normal((_TILES, 3, *images.tile), np.float32)
    expected = tile_features(load_whole(inputs.target.folder), torch.from_numpy(pixels)).numpy()
    session = ort.InferenceSession(folder / ENCODER_FILE, providers=["CPUExecutionProvider"])
    found = np.stack([session.run(None, {PIXELS: tile})[0] for tile in pixels])
    wanted = (_TILES, images.tile_rows, images.width)
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
