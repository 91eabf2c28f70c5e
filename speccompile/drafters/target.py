"""Check that a head fits the target, and resolve the taps at which it reads the target's hidden states."""

from collections.abc import Iterable, Mapping

from speccompile.drafters.dialects import Keys
from speccompile.errors import CheckpointError, RecipeError
from speccompile.plan.head import HeadFolder, HeadRequest
from speccompile.plan.recipe_source import RecipeSource

NORM = "norm.output"
"""Tap at the output of the final norm: the input of the target's head."""


def final_norm(layers: int) -> tuple[str, ...]:
    """Return the taps of heads that read the input of the target's own head."""
    return (NORM,)


def require_final_norm(
    dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]
) -> tuple[str, str, str] | None:
    """Return the refusal of other taps than NORM for a new head, or None: its dialect cannot store taps."""
    return None if taps == (NORM,) else ("taps", ", ".join(taps), f"{NORM}, which is what its dialect reads")


def check_sizes(keys: Keys, request: HeadRequest, hidden: int | None, vocabulary: int | None) -> None:
    """Raise RecipeError at `drafter.model` unless a head was made for a target of these sizes.

    hidden, vocabulary: of the head's target, None if the head does not say.
    """
    target = request.target
    pairs = (("hidden size", hidden, target.hidden_size), ("vocabulary", vocabulary, target.vocabulary_size))
    for what, ours, theirs in pairs:
        if ours is not None and theirs is not None and ours != theirs:
            raise request.origin.refusal(
                "drafter.model",
                f"a head for a target with a {what} of {ours} (says {keys.folder.config_file})",
                f"one for {theirs}, the {what} of the target '{target.reference}'",
                "use the head that was trained for this target, or the target that this head was trained for",
            )


def target_hidden_size(request: HeadRequest) -> int:
    """Return the target's hidden size H. Raise RecipeError if its config does not say."""
    return _said(request, request.target.hidden_size, "its hidden size")


def target_layers(request: HeadRequest) -> int:
    """Return the target's number of layers L. Raise RecipeError if its config does not say."""
    return _said(request, request.target.layers, "how many layers it has")


def _said(request: HeadRequest, value: int | None, what: str) -> int:
    if value is not None:
        return value
    raise request.origin.refusal(
        "drafter.kind", f"'{request.kind}'", f"a target whose config.json says {what}",
        "use a drafter that reads no features",
    )  # fmt: skip


def target_mismatch_note(base: object, request: HeadRequest) -> tuple[str, ...]:
    """Return a note if the head names another target than the recipe. It is no error, because paths differ."""
    name = str(base or "").rstrip("/").rpartition("/")[2].lower()
    known = request.target.reference.rstrip("/").rpartition("/")[2].lower()
    if not name or name == known:
        return ()
    return (f"the head says that it was made for '{base}'; the target is '{request.target.reference}'",)


def outputs(ids: Iterable[int], layers: int, where: str) -> tuple[str, ...]:
    """Return the taps at the outputs of these layers, before the final norm; -1 is the embedding.

    where: the config key, for the CheckpointError that other ids raise.
    """
    return tuple(
        "layers.0.input" if each == -1 else f"layers.{_checked(each, -1, layers - 1, layers, where)}.output"
        for each in ids
    )


def inputs(ids: Iterable[int], layers: int, where: str) -> tuple[str, ...]:
    """Return the taps at the inputs of these layers; id `layers` is the output of the last layer, before the final
    norm. where: the config key, for the CheckpointError that other ids raise."""
    return tuple(
        f"layers.{layers - 1}.output" if each == layers else f"layers.{_checked(each, 0, layers, layers, where)}.input"
        for each in ids
    )


def _checked(layer: int, least: int, most: int, layers: int, where: str) -> int:
    if least <= layer <= most:
        return layer
    raise CheckpointError(
        f"{where}: received layer id {layer}, expected ids from {least} to {most}: the target has {layers} layers",
        hint="use the target that this head was trained for, or set drafter.taps in the recipe",
    )


def resolve_taps(
    folder: HeadFolder, request: HeadRequest, taps: tuple[str, ...], wanted: int | None
) -> tuple[str, ...]:
    """Return the recipe's taps, or the file's if it has none. wanted: number of taps that the head's first matrix
    reads, None if unknown.

    Raise RecipeError or CheckpointError if the number of taps differs; RecipeError for a tap that does not exist.
    """
    found = request.taps or taps
    if wanted is not None and len(found) != wanted:
        received = f"{len(found)} taps ({', '.join(found)}), expected {wanted}, which is what fc.weight reads"
        hint = "name as many taps as the matrix has parts: drafter.taps"
        if request.taps:
            raise request.origin.error("drafter.taps", f"received {received}", hint)
        raise CheckpointError(f"{folder.config_file}: received {received}", hint=hint)
    layers = target_layers(request)
    for tap in request.taps:
        check_tap(tap, layers, request.origin)
    return found


def check_tap(
    tap: str,
    layers: int,
    origin: RecipeSource,
    key: str = "drafter.taps",
    example: str = "layers.2.input, layers.16.input, layers.29.input",
) -> None:
    """Raise RecipeError unless a tap of the recipe exists in a target with this number of layers."""
    parts = tap.split(".")
    is_layer = len(parts) == 3 and parts[0] == "layers" and parts[1].isdecimal() and parts[2] in ("input", "output")
    if tap == NORM or (is_layer and int(parts[1]) < layers):
        return
    error: RecipeError = origin.refusal(
        key, f"'{tap}'", f"layers.<0 to {layers - 1}>.input, layers.<0 to {layers - 1}>.output or {NORM}",
        f"for example `taps: [{example}]`",
    )  # fmt: skip
    raise error


def switches(
    request: HeadRequest, found: dict[str, bool | int | float | str | None]
) -> dict[str, bool | int | float | str | None]:
    """Return the file's switches, overridden by the recipe's. Raise RecipeError for an unknown name or wrong type."""
    for name, value in request.switches.items():
        if name not in found:
            raise request.origin.refusal(
                f"drafter.switches.{name}", "an unknown switch", f"one of {', '.join(found) or 'none'}",
                "`speccompile plan` shows the switches of this head, and how its files set them",
            )  # fmt: skip
        if found[name] is not None and type(value) is not type(found[name]):
            raise request.origin.refusal(
                f"drafter.switches.{name}", repr(value), f"a {type(found[name]).__name__} such as {found[name]}",
                "give it a value of that type",
            )  # fmt: skip
    return found | dict(request.switches)
