"""Whether a head was made for the target, and where in the target the things lie that it reads."""

from collections.abc import Iterable, Mapping

from speccompile.drafters.dialects import Keys
from speccompile.errors import CheckpointError, RecipeError
from speccompile.plan.head import HeadFolder, HeadRequest
from speccompile.plan.recipe_source import RecipeSource

NORM = "norm.output"
"""What the final norm gives: the hidden state that the target's head reads."""


def final_norm(layers: int) -> tuple[str, ...]:
    """The tap of heads that read what the target's own head reads."""
    return (NORM,)


def require_final_norm(
    dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]
) -> tuple[str, str, str] | None:
    """Refuses other taps of a new such head: its dialect has no word for what it reads."""
    return None if taps == (NORM,) else ("taps", ", ".join(taps), f"{NORM}, which is what its dialect reads")


def check_sizes(keys: Keys, request: HeadRequest, hidden: int | None, vocabulary: int | None) -> None:
    """Compare the sizes of the target that a head was made for, None where it does not say, with the target's.

    Raises RecipeError at `drafter.model`.
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
    """H. Raises RecipeError where the target does not say."""
    return _said(request, request.target.hidden_size, "its hidden size")


def target_layers(request: HeadRequest) -> int:
    """L. Raises RecipeError where the target does not say."""
    return _said(request, request.target.layers, "how many layers it has")


def _said(request: HeadRequest, value: int | None, what: str) -> int:
    if value is not None:
        return value
    raise request.origin.refusal(
        "drafter.kind", f"'{request.kind}'", f"a target whose config.json says {what}",
        "use a drafter that reads no features",
    )  # fmt: skip


def target_mismatch_note(base: object, request: HeadRequest) -> tuple[str, ...]:
    """What is said of a head that names another target than the recipe does: paths differ, so it is only said."""
    name = str(base or "").rstrip("/").rpartition("/")[2].lower()
    known = request.target.reference.rstrip("/").rpartition("/")[2].lower()
    if not name or name == known:
        return ()
    return (f"the head says that it was made for '{base}'; the target is '{request.target.reference}'",)


def outputs(ids: Iterable[int], layers: int, where: str) -> tuple[str, ...]:
    """Taps behind these layers, before the final norm; -1 is the embedding.

    where: the key that says so, for the CheckpointError that other ids raise.
    """
    return tuple(
        "layers.0.input" if each == -1 else f"layers.{_checked(each, -1, layers - 1, layers, where)}.output"
        for each in ids
    )


def inputs(ids: Iterable[int], layers: int, where: str) -> tuple[str, ...]:
    """Taps before these layers: boundaries between layers, of which the last lies behind all of them and before the
    final norm."""
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
    """The recipe's taps in the place of the file's. wanted: how many the head's first matrix reads, where it tells.

    Raises RecipeError or CheckpointError where there are more or fewer.
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
    """Raises RecipeError for a tap of the recipe that is no place in a target of so many layers."""
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
    """The file's switches, with those of the recipe in their place. Raises RecipeError for one that there is not."""
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
