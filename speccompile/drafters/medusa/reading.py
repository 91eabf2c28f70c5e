"""Read the folder of Medusa heads."""

from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.medusa.dialects import MEDUSA_2, VLLM
from speccompile.drafters.numbered import count_heads, count_numbered
from speccompile.drafters.target import NORM, check_sizes, target_hidden_size, target_mismatch_note
from speccompile.errors import CheckpointError
from speccompile.plan.head import TOKEN_MAP, HeadFolder, HeadPlan, HeadRequest, TensorSource
from speccompile.plan.layers import Shapes

Sources = dict[str, TensorSource]


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read the heads. Raise CheckpointError for an invalid folder, RecipeError for heads of another target."""
    keys, is_vllm = Keys(folder), dialect.name == VLLM
    sizes = (target_hidden_size(request), request.target.vocabulary_size)
    check_sizes(keys, request, keys.get("hidden_size"), keys.get("vocab_size"))
    if dialect.name == MEDUSA_2:
        _refuse_other_target(folder, request)
    found = dialect.rename(folder)
    count, notes = count_heads(
        keys, found, "blocks", *(["num_heads"] if is_vllm else []), "medusa_num_heads", "num_medusa_heads"
    )
    layers = keys.count(
        *(["num_hidden_layers"] if is_vllm else []), "medusa_num_layers", "num_medusa_layers",
        default=count_numbered(found, "blocks.0.layers"),
    )  # fmt: skip
    has_bias = keys.flag("medusa_fc_bias", default="blocks.0.layers.0.bias" in found)
    found = _projections(keys, found, is_vllm)
    own = _own_vocabulary(keys, found, sizes[1])
    base = keys.get("base_model_name_or_path")
    if dialect.name != MEDUSA_2:  # Medusa-2's config is the target's
        keys.ignore("version", "max_paths", "topk", "max_seq_len")
        keys.expect("logit_scale", 1, 1.0, reason="scaled logits of heads are not compiled")
        keys.refuse_unknown()
    projection = "lm_head.weight" if "lm_head.weight" in found else "lm_heads."
    rows = {name: source.shape[0] for name, source in found.items() if name.startswith(projection) and source.shape}
    rows = {name: size if size == sizes[1] else own or sizes[1] for name, size in rows.items()}
    found = check_tensors(folder, found, head_shapes(count, layers, sizes[0], rows, own, has_bias=has_bias))
    files = {source.file for source in found.values()}
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path,
        tuple(file for file in folder.files if file.suffix == ".json" or file.name in files), (NORM,), *sizes, None, {},
        found, tokens=count, default_tokens=count, base=base, notes=(*notes, *target_mismatch_note(base, request)),
    )  # fmt: skip


def head_shapes(
    heads: int, layers: int, hidden: int, rows: dict[str, int], own: int | None, *, has_bias: bool
) -> Shapes:
    """Return the tensors of the formula. rows: name -> number of rows of the projections: `lm_heads.<i>.weight` for a
    head, `lm_head.weight` for all heads, or none if they use the target's. own: size of the draft vocabulary, None for
    the target's."""
    expected: Shapes = {name: (size, hidden) for name, size in rows.items()}
    if any(name.startswith("lm_heads.") for name in rows):
        expected |= {f"lm_heads.{head}.weight": (max(rows.values()), hidden) for head in range(heads)} | expected
    for name in (f"blocks.{head}.layers.{layer}" for head in range(heads) for layer in range(layers)):
        expected[f"{name}.weight"] = (hidden, hidden)
        if has_bias:
            expected[f"{name}.bias"] = (hidden,)
    return expected | ({TOKEN_MAP: (own,)} if own else {})


def _refuse_other_target(folder: HeadFolder, request: HeadRequest) -> None:
    if request.target.folder is None or request.target.folder.resolve() != folder.path.resolve():
        raise CheckpointError(
            f"{folder.path}: received the heads of a Medusa-2 model ('medusa_head.*' beside the model's own weights) "
            f"for the target '{request.target.reference}', expected the target to be that model: its weights were "
            "trained with the heads, which fit no other",
            hint="set target.model to this folder as well, or use heads that were trained for a frozen target",
        )


def _projections(keys: Keys, found: Sources, is_vllm: bool) -> Sources:
    """Return the tensors, with a shared projection named `lm_head.weight`: vLLM also finds it as `lm_heads.0.weight`.

    Heads of FasterDecoding's later training have no projection and use the target's.
    """
    is_shared = keys.flag("original_lm_head", default="lm_head.weight" in found)
    first = "lm_heads.0.weight"
    if is_shared and "lm_head.weight" not in found and first in found:
        found = {"lm_head.weight" if name == first else name: source for name, source in found.items()}
    if is_vllm and not any(name.startswith("lm_head") for name in found):
        raise CheckpointError(
            f"{keys.folder.path}: received no tensor '{'lm_head.weight' if is_shared else first}', expected what turns "
            "hidden states into logits",
            hint="copy or download the folder again",
        )
    return found


def _own_vocabulary(keys: Keys, found: Sources, vocabulary: int) -> int | None:
    """Return the size of the draft vocabulary, or None for the target's; then a map is ignored, as in vLLM."""
    size = keys.count("truncated_vocab_size", default=vocabulary)
    if size > vocabulary:
        raise keys.wrong("truncated_vocab_size", size, f"at most {vocabulary}, the target's vocabulary")
    if size == vocabulary:
        found.pop(TOKEN_MAP, None)
        return None
    source = found.get(TOKEN_MAP)
    if source is not None and source.dtype not in ("I64", "I32"):
        raise CheckpointError(
            f"{keys.folder.path / source.file}: received '{TOKEN_MAP}' of dtype {source.dtype}, expected token ids",
            hint="copy or download the file again",
        )
    return size
