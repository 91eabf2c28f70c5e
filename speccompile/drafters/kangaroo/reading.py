"""Read the folder of a Kangaroo adapter."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.target import check_sizes, check_tap, switches, target_layers, target_mismatch_note
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.layers import LayerShape, Shapes

EXIT, DEEPER_EXIT, DEEPER = 2, 3, 40
"""Number of target layers before the adapter: for Vicuna 7B, and for 13B, which has 40 layers."""
DRAFTS = 6
"""Maximum number of drafts in the published code."""
THETA = 10000.0
"""RoPE theta of the published code, which ignores the config."""
KEY = "exit_layer"


def default_taps(layers: int) -> tuple[str, ...]:
    """Return the published tap, or an earlier one in a target with fewer layers."""
    before = min(DEEPER_EXIT if layers == DEEPER else EXIT, layers - 1)
    return (f"layers.{before - 1}.output",)


def refused(dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """See `Training.refusal`."""
    if len(taps) == 1 and taps[0].startswith("layers.") and taps[0].endswith(".output"):
        return None
    return "taps", f"[{', '.join(taps)}]", "the output of one layer, such as [layers.1.output]"


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read an adapter. Raise CheckpointError for an invalid folder, RecipeError for an adapter of another target."""
    keys, found = Keys(folder), dialect.rename(folder)
    hidden, vocabulary = keys.count("hidden_size"), keys.get("vocab_size")
    check_sizes(keys, request, hidden, vocabulary)
    layers = read_layers(keys, found)
    chosen = switches(request, {"rope_theta": THETA})
    tap, notes = _tap(keys, request)
    notes += _rope_note(layers, chosen["rope_theta"], keys)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": chosen["rope_theta"]}
    layers = replace(layers, rope=rope, windows=(0,) * layers.count)
    base = keys.get("base_model_name_or_path")
    keys.refuse_unknown()
    found = check_tensors(folder, found, adapter_shapes(layers))
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, (tap,), hidden,
        request.target.vocabulary_size, layers, chosen, found, default_tokens=DRAFTS, base=base,
        notes=(*notes, *target_mismatch_note(base, request)),
    )  # fmt: skip


def exit_layer(head: HeadPlan) -> int:
    """Return the number E of the target's layers before the adapter."""
    return int(head.taps[0].split(".")[1]) + 1


def adapter_shapes(layers: LayerShape) -> Shapes:
    """Return the shapes of the tensors: attention and the norm before it in every layer, and a final norm."""
    kept = (".self_attn.", ".input_layernorm.")
    shapes: Shapes = {"norm.weight": (layers.hidden_size,)}
    for index in range(layers.count):
        shapes |= {name: shape for name, shape in layers.tensors(index).items() if any(part in name for part in kept)}
    return shapes


def _tap(keys: Keys, request: HeadRequest) -> tuple[str, list[str]]:
    """Return the tap at the target's last layer before the adapter, of the recipe, config or publisher, and notes."""
    layers, notes = target_layers(request), list[str]()
    written = keys.get(KEY)
    known = DEEPER_EXIT if layers == DEEPER else EXIT
    if request.taps:
        before = _layers_before(request, layers)
    elif written is not None:
        before = keys.count(KEY)
    else:
        before = known
        notes.append(
            f"{keys.folder.config_file} does not say '{KEY}': {known} is taken, as the publisher has it for targets "
            f"of {layers} layers; where it was another, set drafter.taps to [layers.<{KEY} - 1>.output]"
        )
    if not 1 <= before < layers:
        received = before if written is not None else f"nothing, which means {before}"
        raise CheckpointError(
            f"{keys.folder.config_file}: {KEY}: received {received}, expected 1 to {layers - 1}: the target has "
            f"{layers} layers, and the adapter stands in the place of the last ones",
            hint="use the target that the adapter was trained for, or set drafter.taps in the recipe",
        )
    return f"layers.{before - 1}.output", notes


def _layers_before(request: HeadRequest, layers: int) -> int:
    """Return the number of the target's layers before the recipe's tap. Raise RecipeError unless the tap is one
    boundary between two layers."""
    for tap in request.taps:
        check_tap(tap, layers, request.origin)
    found = {f"layers.{index}.output": index + 1 for index in range(layers - 1)}
    found |= {f"layers.{index}.input": index for index in range(1, layers)}
    if len(request.taps) != 1 or request.taps[0] not in found:
        raise request.origin.refusal(
            "drafter.taps", f"[{', '.join(request.taps)}]",
            f"one place between two layers of the target: layers.<0 to {layers - 2}>.output",
            f"for example `taps: [layers.{min(EXIT, layers - 1) - 1}.output]`",
        )  # fmt: skip
    return found[request.taps[0]]


def _rope_note(layers: LayerShape, theta: Any, keys: Keys) -> list[str]:
    if layers.rope == {"rope_type": "default", "rope_theta": theta}:
        return []
    said = ", ".join(f"{name} {value}" for name, value in layers.rope.items())
    return [
        f"{keys.folder.config_file} says {said}; positions are turned by {theta}, as the published code does whatever "
        "it says: drafter.switches.rope_theta changes that"
    ]
