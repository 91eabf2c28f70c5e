"""Read the folder of a P-EAGLE head: EAGLE-3's description, and the token and features of the mask rows."""

from dataclasses import replace
from math import prod
from typing import Any

from speccompile.drafters.dialects import DUPLICATE, Dialect
from speccompile.drafters.eagle3 import reading as eagle3
from speccompile.drafters.p_eagle.dialects import MASK
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch

SWITCH = "mask_token"
"""Name of the switch with the token of the mask rows."""
TOKEN_KEYS = (
    "dflash_config.mask_token_id", "mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id",
)  # fmt: skip
"""Config keys of the mask token, in vLLM's order."""
_RESIDUAL = "norm_before_residual"
_MARKS = ("parallel_drafting",)
"""Keys that only mark a head as P-EAGLE."""


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    token = read_token(folder, request)
    head = eagle3.read(_without_mask(folder), without_token(request), dialect, evidence)
    source = folder.tensors.get(MASK)
    wanted = len(head.taps) * head.hidden_size
    if source is None:
        raise CheckpointError(
            f"{folder.path}: received no tensor '{MASK}', expected one of {wanted} numbers, which stand for the "
            "features of tokens that are not there yet",
            hint=DUPLICATE,
        )
    if prod(source.shape) != wanted:
        raise CheckpointError(
            f"{folder.path / source.file}: received tensor '{source.name}' of shape {list(source.shape)}, expected "
            f"{wanted} numbers: the hidden size of the target for each of {len(head.taps)} taps",
            hint="check that config.json belongs to these weights, and that the head was made for this target",
        )
    return replace(
        head, files=folder.files, switches={**head.switches, SWITCH: token}, tensors={**head.tensors, MASK: source}
    )


def read_token(folder: HeadFolder, request: HeadRequest) -> int:
    """Return the token of the mask rows. Raise RecipeError if it is invalid in the recipe, else CheckpointError."""
    size = request.target.vocabulary_size
    expected = f"a token from 0 to {size - 1}, which stands in the rows behind the text"
    if SWITCH in request.switches:
        chosen = request.switches[SWITCH]
        if not _is_token(chosen, size):
            raise request.origin.refusal(f"drafter.switches.{SWITCH}", repr(chosen), expected, "give one of its tokens")
        return int(chosen or 0)
    key = next((key for key in TOKEN_KEYS if folder.value(key) is not None), "mask_token_id")
    value = folder.value(key)
    if not _is_token(value, size):
        shown = "nothing" if value is None else repr(value)
        raise CheckpointError(
            f"{folder.config_file}: {key}: received {shown}, expected {expected}",
            hint=f"check the config against the head as it was published, or set drafter.switches.{SWITCH}",
        )
    return int(value)


def _is_token(value: Any, size: int) -> bool:
    return type(value) is int and 0 <= value < size


def _without_mask(folder: HeadFolder) -> HeadFolder:
    """Return the folder without P-EAGLE's keys and tensor. By default the residual is not normed: speculators' P-EAGLE
    differs from its EAGLE-3 in this."""
    ours = {*TOKEN_KEYS, *_MARKS}
    section, _, key = TOKEN_KEYS[0].partition(".")
    if isinstance(folder.config.get(section), dict) and set(folder.config[section]) == {key}:
        ours.add(section)
    config = {key: value for key, value in folder.config.items() if key not in ours}
    if config.get(_RESIDUAL) is None:
        config[_RESIDUAL] = False
    return replace(folder, config=config, tensors={n: t for n, t in folder.tensors.items() if n != MASK})


def without_token(request: HeadRequest) -> HeadRequest:
    switches: dict[str, Switch] = {name: value for name, value in request.switches.items() if name != SWITCH}
    return replace(request, switches=switches)
