"""torch -> ONNX of an image encoder: the inputs of one run in, its rows out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes import common
from torch import Tensor, nn

from speccompile.bundle.media import ENCODE_IMAGE, IMAGES_FOLDER, ROWS
from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.decompose import quick_translation
from speccompile.compiler.lower.export import quick_trace, without_noise
from speccompile.compiler.lower.files import read_neutral, save
from speccompile.compiler.lower.quantize import quantize_layers
from speccompile.compiler.lower.translations import translation
from speccompile.compiler.models.load import first_line
from speccompile.compiler.weights.graph import put_weights
from speccompile.compiler.weights.tensor import without_numbers
from speccompile.errors import UnsupportedModelError

ENCODER_FILE = f"{IMAGES_FOLDER}/{ENCODE_IMAGE}.onnx"
WEIGHTS_FILE = f"{ENCODE_IMAGE}.weights"
TRACED_FILE, TRACED_WEIGHTS = f"{IMAGES_FOLDER}/{ENCODE_IMAGE}.neutral.onnx", f"{ENCODE_IMAGE}.neutral.weights"
"""Files of an encoder whose weights get another precision; they are not part of the bundle."""


@torch.no_grad()
def export_encoder(
    encoder: nn.Module, example: Mapping[str, Tensor], folder: Path, dynamic: Mapping[str, Any] | None = None, *,
    is_final: bool = True,
) -> None:  # fmt: skip
    """Write the graph of an encoder, and its weights, into the folder of a bundle. example: inputs by name; dynamic:
    their dynamic dimensions; is_final: its weights keep their precision. Raise UnsupportedModelError if it
    cannot be traced."""
    with without_noise(), quick_trace(), without_numbers(encoder) as sources:
        try:
            program = torch.export.export(encoder, (), dict(example), dynamic_shapes=dynamic, strict=False)
            with quick_translation():
                model = torch.onnx.export(
                    program, dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False,
                    custom_translation_table=translation(),
                ).model  # fmt: skip
        except RuntimeError as error:  # the base of all errors of torch's exporters
            raise UnsupportedModelError(
                f"{type(encoder).__name__}: the image encoder cannot be traced: {first_line(error)}",
                hint="remove target.images: the text decoder alone is compiled",
            ) from error
    put_weights(model, sources)
    for value, name in zip((*model.graph.inputs, model.graph.outputs[0]), (*example, ROWS), strict=True):
        value.name = name
    common.ClearMetadataAndDocStringPass()(model)  # stack traces hold paths of the tracing machine
    model.producer_name = model.producer_version = None
    model.graph.name = ENCODE_IMAGE
    _tidy(model)
    save(model, *((folder / ENCODER_FILE, WEIGHTS_FILE) if is_final else (folder / TRACED_FILE, TRACED_WEIGHTS)))


def lower_encoder(folder: Path, word: str) -> None:
    """Write a traced encoder with the weights of its linear layers in another precision, bfloat16 or int8, in the
    layout of the kernels of `native/`. Convolutions, tables and products of activations stay float32."""
    model = read_neutral(folder / TRACED_FILE)
    quantize_layers(model, word)
    save(model, folder / ENCODER_FILE, WEIGHTS_FILE)


def _tidy(model: ir.Model) -> None:
    common.IdentityEliminationPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
