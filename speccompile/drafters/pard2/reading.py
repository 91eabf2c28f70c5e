"""Read the folder of a PARD-2 draft model: its layers, the mask token, and how it reads the target."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.p_eagle.reading import SWITCH, TOKEN_KEYS, read_token, without_token
from speccompile.drafters.pard2.dialects import PROJECTION_FILE
from speccompile.drafters.pickles import read_pickle
from speccompile.drafters.target import (
    NORM,
    check_sizes,
    inputs,
    resolve_taps,
    switches,
    target_hidden_size,
    target_layers,
)
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, TensorSource
from speccompile.plan.layers import LayerShape, Shapes

IDS, SCALE = "pard2_target_layers", "scale"
"""Config key of the target's hidden states; name of the switch by which their projection is scaled."""
DEFAULT_SCALE = 0.02
PROJECTION = "target_proj.weight"


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a draft model. Raise CheckpointError for an invalid folder, RecipeError for one of another target."""
    folder = _with_projection(folder)
    token, hidden, layers_of_target = read_token(folder, request), target_hidden_size(request), target_layers(request)
    keys, found = Keys(folder), dialect.rename(folder)
    check_sizes(keys, request, None, keys.count("vocab_size"))
    keys.word("model_type", default="llama", known=("llama", "qwen2", "qwen3"))
    layers = read_layers(keys, found)
    keys.ignore("pard2", "spd_type", *TOKEN_KEYS)
    ids = keys.counts(IDS, "target_layers", least=-1 - layers_of_target)
    if ids is None and not request.taps:
        raise keys.wrong(IDS, ids, "ids of the target's hidden states, such as [-1, -8, -16, -24]")
    said = taps_of(ids or (), layers_of_target, f"{folder.config_file}: {IDS}")
    taps = resolve_taps(folder, request, said, None)
    _check_width(folder, request, found, len(taps), hidden)
    dimension = keys.count("pard2_target_dim", "pard_target_dim", default=len(taps) * hidden)
    if dimension != len(taps) * hidden:
        raise keys.wrong("pard2_target_dim", dimension, f"{len(taps) * hidden}: {len(taps)} taps of width {hidden}")
    scale = keys.number("pard2_scale", "pard_scale", "feat_scale", default=DEFAULT_SCALE)
    chosen = switches(without_token(request), {SCALE: scale})
    bias = keys.flag("pard2_proj_bias", "proj_bias", default="target_proj.bias" in found)
    tied = keys.flag("tie_word_embeddings", default=False)
    keys.refuse_unknown()
    vocabulary = request.target.vocabulary_size
    expected = model_shapes(layers, len(taps) * hidden, vocabulary, bias=bias)
    found = check_tensors(folder, found, expected, optional=("lm_head.weight",) if tied else ())
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, taps, hidden, vocabulary, layers,
        {**chosen, SWITCH: token}, found,
    )  # fmt: skip


def _check_width(
    folder: HeadFolder, request: HeadRequest, found: Mapping[str, TensorSource], taps: int, hidden: int
) -> None:
    """Raise RecipeError for a projection of features of another width than that of the taps."""
    source = found.get(PROJECTION)
    if source is not None and source.shape[-1] != taps * hidden:
        raise request.origin.refusal(
            "drafter.model", f"a draft model whose '{source.name}' in {folder.path / source.file} reads features of "
            f"width {source.shape[-1]}", f"{taps * hidden}: {taps} taps of the target's hidden size {hidden}",
            "use the draft model that was trained for this target, or name its taps in drafter.taps",
        )  # fmt: skip


def _with_projection(folder: HeadFolder) -> HeadFolder:
    """Return the folder with the tensors of the projection's own file, if it has one."""
    if PROJECTION in folder.tensors or not (folder.path / PROJECTION_FILE).is_file():
        return folder
    tensors = {**folder.tensors, **read_pickle(folder.path / PROJECTION_FILE)}
    return replace(folder, tensors=tensors, files=(*folder.files, Path(PROJECTION_FILE)))


def taps_of(ids: Iterable[int], layers: int, where: str) -> tuple[str, ...]:
    """Return the taps of transformers' hidden states with these ids: 0 is the embedding, -1 or the number of layers the
    output of the final norm. where: the config key, for the CheckpointError that other ids raise."""
    counted = [each + layers + 1 if each < 0 else each for each in ids]
    return tuple(NORM if each == layers else inputs([each], layers, where)[0] for each in counted)


def ids_of(taps: Iterable[str]) -> list[int]:
    """Return the ids of taps that `refused` passes: the inverse of `taps_of`."""
    return [-1 if tap == NORM else int(tap.split(".")[1]) for tap in taps]


def default_taps(layers: int) -> tuple[str, ...]:
    """Return the taps of the published training, hidden states -1, -8, -16 and -24 of 36 layers, in proportion."""
    earlier = (round(layers * (1 - (each - 1) / 36)) for each in (24, 16, 8))
    return taps_of([-1, *sorted(set(earlier) - {layers}, reverse=True)], layers, IDS)


def refused(dialect: str, taps: tuple[str, ...], sizes: Mapping[str, int | str]) -> tuple[str, str, str] | None:
    """Return the refusal of taps that are not among transformers' hidden states by their names, or None."""
    wrong = next((tap for tap in taps if tap != NORM and not tap.endswith(".input")), None)
    return None if wrong is None else ("taps", f"'{wrong}'", f"{NORM} or inputs of layers, such as layers.2.input")


def model_shapes(layers: LayerShape, features: int, vocabulary: int, *, bias: bool) -> Shapes:
    """Return the tensors of the formula. features: width of all taps."""
    width = layers.hidden_size
    expected: Shapes = {
        "embed_tokens.weight": (vocabulary, width), "norm.weight": (width,), "lm_head.weight": (vocabulary, width),
        PROJECTION: (width, features),
    }  # fmt: skip
    if bias:
        expected["target_proj.bias"] = (width,)
    for index in range(layers.count):
        expected |= layers.tensors(index)
    return expected
