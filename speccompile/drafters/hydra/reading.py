"""Read the folder of Hydra heads."""

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.hydra.dialects import MLP, PREFIX_MLP
from speccompile.drafters.numbered import count_heads, count_numbered
from speccompile.drafters.target import (
    NORM,
    check_sizes,
    inputs,
    resolve_taps,
    target_hidden_size,
    target_layers,
    target_mismatch_note,
)
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, TensorSource
from speccompile.plan.layers import LayerShape, Shapes

Sources = dict[str, TensorSource]


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read the heads. Raise CheckpointError for an invalid folder, RecipeError for heads of another target."""
    keys, found = Keys(folder), _renumbered(dialect.rename(folder))
    sizes = (target_hidden_size(request), request.target.vocabulary_size)
    check_sizes(keys, request, keys.get("hidden_size"), keys.get("vocab_size"))
    arch = keys.word("hydra_head_arch", default=MLP, known=(MLP, PREFIX_MLP))
    is_grounded = keys.flag("grounded_heads", default=False)
    if arch == PREFIX_MLP and not is_grounded:
        raise keys.wrong("grounded_heads", False, f"true: of {PREFIX_MLP} only grounded heads have one meaning")
    count, notes = count_heads(keys, found, "mlps", "hydra_num_heads")
    layers = keys.count("hydra_num_layers", default=count_numbered(found, "mlps.0"))
    keys.ignore("dropout_rate")
    taps = resolve_taps(folder, request, _taps(folder, keys, request), 1)
    base = keys.get("base_model_name_or_path")
    keys.refuse_unknown()
    prefix = _prefix(request, found) if arch == PREFIX_MLP else None
    if not is_grounded:
        found.pop("embed_tokens.weight", None)  # the original module has it even if it is unused
    expected = head_shapes(count, layers, sizes, prefix, is_grounded=is_grounded)
    found = check_tensors(folder, found, expected, optional=("embed_tokens.weight",))
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, taps, *sizes, prefix,
        {"grounded_heads": is_grounded}, found, tokens=count, default_tokens=count,
        base=base, notes=(*notes, *target_mismatch_note(base, request)),
    )  # fmt: skip


def head_shapes(
    heads: int, layers: int, sizes: tuple[int, int], prefix: LayerShape | None, *, is_grounded: bool
) -> Shapes:
    """Return the tensors of the formula. sizes: the target's hidden size and vocabulary size."""
    hidden, vocabulary = sizes
    expected: Shapes = {"embed_tokens.weight": (vocabulary, hidden)} if is_grounded else {}
    for head in range(heads):
        for layer in range(layers):
            is_wide = is_grounded and layer == 0
            for name in ("linear", "res_connection") if is_wide else ("linear",):
                width = (head + 2) * hidden if is_wide else hidden
                expected[f"mlps.{head}.{layer}.{name}.weight"] = (hidden, width)
                expected[f"mlps.{head}.{layer}.{name}.bias"] = (hidden,)
        expected |= {f"lm_heads.{head}.weight": (vocabulary, hidden), f"lm_heads.{head}.bias": (vocabulary,)}
    return expected | ({**prefix.tensors(0), "norm.weight": (hidden,)} if prefix else {})


def _renumbered(found: Sources) -> Sources:
    """Number blocks consecutively: published numbers also count the dropout modules between them."""
    places: dict[str, list[int]] = {}
    for name in found:
        if name.startswith("mlps."):
            _, head, place, *_ = name.split(".")
            places.setdefault(head, []).append(int(place))
    orders = {head: sorted(set(its)) for head, its in places.items()}

    def renamed(name: str) -> str:
        if not name.startswith("mlps."):
            return name
        _, head, place, *rest = name.split(".")
        return ".".join(["mlps", head, str(orders[head].index(int(place))), *rest])

    return {renamed(name): source for name, source in found.items()}


def _taps(folder: HeadFolder, keys: Keys, request: HeadRequest) -> tuple[str, ...]:
    """Return the tap of the final hidden state, or of the layer boundary `hidden_state_offset` before it."""
    offset = keys.count("hidden_state_offset", default=0, least=0)
    if offset == 0:
        return (NORM,)
    layers = target_layers(request)
    return inputs((layers - offset,), layers, f"{folder.config_file}: hidden_state_offset")


def _prefix(request: HeadRequest, found: Sources) -> LayerShape:
    """Return the shape of Hydra++'s layer: it is one of the target's layers, and only the target's config has it."""
    path = request.target.folder
    config = None if path is None else read_json_object(path / CONFIG)
    if path is None or config is None:
        raise request.origin.refusal(
            "drafter.kind", f"'{request.kind}' with a prefix layer", "a target with a config.json, which says its form",
            "use heads of hydra_head_arch mlp",
        )  # fmt: skip
    return read_layers(Keys(HeadFolder(path, config, {}, ())), found, count=1)
