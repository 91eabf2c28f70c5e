"""Read the folder of a BiTA checkpoint. Its config is the target's, with a few additional keys."""

from speccompile.drafters.bita.dialects import INNER, MASKS, OUTER, PREFIX
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.target import check_sizes, target_layers, target_mismatch_note
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.layers import Shapes

_OF_THE_TARGET = (
    "intermediate_size", "rms_norm_eps", "rope_scaling", "rope_theta", "rope_parameters", "max_position_embeddings",
    "hidden_act", "attention_bias", "mlp_bias",
)  # fmt: skip
_OF_TRAINING = ("prefix_dropout_prob", "max_efficient_groups", "efficient_training")


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a checkpoint. Raise CheckpointError for an invalid folder, RecipeError for one of another target."""
    keys, found = Keys(folder), dialect.rename(folder)
    hidden, layers = keys.count("hidden_size"), keys.count("num_hidden_layers")
    check_sizes(keys, request, hidden, None)  # a vocabulary may have been padded
    if layers != target_layers(request):
        expected = f"{target_layers(request)}, as the target '{request.target.reference}' has"
        raise keys.wrong("num_hidden_layers", layers, expected)
    heads = keys.count("num_attention_heads")
    key_heads, width = keys.count("num_key_value_heads", default=heads), keys.count("head_dim", default=hidden // heads)
    rows = 2 * layers * key_heads * width
    masks, prompts = keys.count("mask_num"), keys.count("prompt_num")
    shapes: Shapes = {MASKS: (masks if keys.flag("mask_diff", default=False) else 1, hidden)}
    if keys.flag("prefix_projection", default=False):
        inner = keys.count("prefix_hidden_size")
        shapes |= {PREFIX: (prompts, hidden), f"{INNER}.weight": (inner, hidden), f"{INNER}.bias": (inner,)}
        shapes |= {f"{OUTER}.weight": (rows, inner), f"{OUTER}.bias": (rows,)}
        last = f"{OUTER}.weight", 0
    else:
        shapes |= {PREFIX: (prompts, rows)}
        last = PREFIX, 1
    name, axis = last
    if key_heads != heads and name in found and found[name].shape[axis : axis + 1] == (2 * layers * heads * width,):
        raise CheckpointError(
            f"{folder.path / found[name].file}: received tensor '{found[name].name}' with keys of {heads} heads, "
            f"expected {key_heads}, as many as the target's caches have: its heads share keys in groups, and a prefix "
            "of their own for each of them has no place beside these",
            hint="train the prefix with num_key_value_heads heads",
        )
    base = keys.get("base_model_name_or_path")
    keys.ignore("vocab_size", "prefix_hidden_size", *_OF_THE_TARGET, *_OF_TRAINING)
    keys.refuse_unknown()
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, (), hidden, request.target.vocabulary_size,
        None, {"mask_num": masks, "key_heads": key_heads, "head_dim": width},
        check_tensors(folder, found, shapes), tokens=masks + 1, base=base, notes=target_mismatch_note(base, request),
    )  # fmt: skip
