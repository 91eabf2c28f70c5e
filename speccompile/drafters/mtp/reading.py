"""Read MTP layers in the target's shards, or in a folder with MTP layers alone. Reads headers only."""

import re
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.drafters.dialects import Dialect, Keys
from speccompile.drafters.mtp.layouts import JOIN, Layout, switches_of
from speccompile.drafters.proposal import read_proposal
from speccompile.drafters.target import (
    NORM,
    check_sizes,
    resolve_taps,
    switches,
    target_hidden_size,
    target_mismatch_note,
)
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, TensorSource

COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
"""Config keys of the number of MTP layers."""
_SECTIONS = ("", "text_config.", "mtp_config.")


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read the layers. Raise CheckpointError for invalid layers, RecipeError for layers of another target."""
    assert isinstance(dialect, Layout), "MTP layers are found by layouts"
    found = dialect.rename(folder)
    count = _count(folder, found)
    hidden, vocabulary = target_hidden_size(request), request.target.vocabulary_size
    _check_sizes(folder, request)
    for index in range(count):
        _check_layer(folder, found, index, hidden, dialect)
    for name, source in found.items():
        if name.endswith(("embed_tokens.weight", "head.weight")) and source.shape != (vocabulary, hidden):
            raise _wrong(folder, source, (vocabulary, hidden))
    proposed, base = read_proposal(Keys(folder)) if not dialect.within else (None, None)
    files = (Path(CONFIG), *sorted({Path(source.file) for source in found.values()}))
    # A single layer is recycled and has no default number of drafts.
    own = count if count > 1 else None
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, files, resolve_taps(folder, request, (NORM,), 1), hidden,
        vocabulary, None, switches(request, switches_of(dialect, folder.config)), found,
        default_tokens=proposed or own, base=base, notes=target_mismatch_note(base, request),
    )  # fmt: skip


def count_layers(head: HeadPlan) -> int:
    """Return the number n of MTP layers."""
    return max(int(name.split(".")[0]) for name in head.tensors if name[0].isdecimal()) + 1


def lacking(folder: HeadFolder, request: HeadRequest) -> CheckpointError:
    """Return the error for a checkpoint without MTP layers."""
    n_layers = request.target.layers
    said = _said(folder)
    where, value = said if said else ("", None)
    says = f", although {folder.config_file.name} says {where}: {value}" if value else ""
    behind = "" if n_layers is None else f" or behind layer {n_layers - 1}"
    return CheckpointError(
        f"{folder.path}: received weights without MTP layers{says}; expected tensors such as {JOIN} or mtp.fc.weight "
        f"under a name of MTP{behind}",
        hint="download the shards that hold them (conversions and fine-tunes often leave them out), name a folder that "
        "has them in drafter.model, or set drafter.kind to another drafter",
    )


def _said(folder: HeadFolder) -> tuple[str, Any] | None:
    """Return key and value of the first count of MTP layers in a config, or None."""
    keys = (f"{section}{name}" for section in _SECTIONS for name in COUNTS)
    return next(((key, folder.value(key)) for key in keys if folder.value(key) is not None), None)


def _count(folder: HeadFolder, found: dict[str, TensorSource]) -> int:
    """Return the number n of MTP layers. Raise CheckpointError if config and weights differ, or a layer is missing."""
    numbers = {int(name.split(".")[0]) for name in found if name[0].isdecimal()}
    count = max(numbers, default=-1) + 1
    lacking = sorted(set(range(count)) - numbers)
    if not numbers or lacking:
        raise CheckpointError(
            f"{folder.path}: received no tensor of the decoder layer of MTP layer {lacking[0] if lacking else 0}, "
            f"expected {'one' if lacking else 'some'} beside {next(iter(found.values())).name}",
            hint="download all shards of the checkpoint again",
        )
    said = _said(folder)
    if said is not None and said[1] != count:
        raise CheckpointError(
            f"{folder.config_file}: {said[0]}: received {said[1]!r}, expected {count}, as many MTP layers as the "
            "weights beside it hold",
            hint="correct config.json, or download the shards that are missing",
        )
    return count


def _check_sizes(folder: HeadFolder, request: HeadRequest) -> None:
    """Raise RecipeError if the sizes in a folder's config are not the target's."""
    section = next((each for each in ("transformer_layer_config", "text_config") if folder.value(each)), "")
    keys = Keys(folder, section)
    check_sizes(keys, request, keys.get("hidden_size"), keys.get("vocab_size"))


def _check_layer(folder: HeadFolder, found: dict[str, TensorSource], index: int, hidden: int, layout: Layout) -> None:
    shapes: dict[str, tuple[int, ...]] = {"enorm.weight": (hidden,), "hnorm.weight": (hidden,)}
    shapes |= {JOIN: (hidden, 2 * hidden)} | ({"norm.weight": (hidden,)} if layout.has_norm else {})
    for name, shape in shapes.items():
        source = found.get(f"{index}.{name}", found.get(name))
        if source is None:
            module = name.rpartition(".")[0]
            if any(each.startswith((f"{index}.{module}.", f"{module}.")) for each in found):
                continue  # quantized: its shape is not comparable
            raise CheckpointError(
                f"{folder.path}: received MTP layer {index} without its {name} in the layout {layout.name}, expected "
                f"one of shape {list(shape)}",
                hint="download all shards of the checkpoint again, or report the layout",
            )
        if source.shape != shape:
            raise _wrong(folder, source, shape)
    if not any(re.match(rf"{index}\.layers\.\d+\.", name) for name in found):
        raise CheckpointError(
            f"{folder.path}: received MTP layer {index} without a decoder layer in the layout {layout.name}, expected "
            "its attention and MLP",
            hint="download all shards of the checkpoint again",
        )


def _wrong(folder: HeadFolder, source: TensorSource, shape: tuple[int, ...]) -> CheckpointError:
    return CheckpointError(
        f"{folder.path / source.file}: received tensor '{source.name}' of shape {list(source.shape)}, expected "
        f"{list(shape)}",
        hint="check that config.json belongs to these weights, and that the layers were made for this target",
    )
