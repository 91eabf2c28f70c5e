"""Read the folder of a Gemma-4 assistant, and determine the layers of the target whose caches it reads."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.target import NORM, check_sizes, target_layers
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch
from speccompile.plan.layers import Shapes

TEXT = "text_config"
SLIDING, FULL = KINDS = ("sliding_attention", "full_attention")
GENERATION = "generation_config.json"

_GLOBAL_HEAD_DIM = 512
"""transformers' default head width of full-attention layers, for older configs without the key."""
_NO_LAYER = "an assistant has dense layers alone, without an embedding of their own"
_OF_LAYERS = (
    "attention_bias", "attention_k_eq_v", "final_logit_softcapping", "global_head_dim", "hidden_activation",
    "max_position_embeddings", "moe_intermediate_size", "num_experts", "num_global_key_value_heads",
    "per_layer_config", "rms_norm_eps", "rope_parameters", "sliding_window", "top_k_experts",
    "use_bidirectional_attention",
)  # fmt: skip
"""Keys that transformers' config class reads, from which the drafter's layers are made."""


class Heads(NamedTuple):
    """Number and width of a layer's key heads, None if the config does not say."""

    number: int | None
    width: int | None


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read an assistant. Raise CheckpointError for an invalid folder, RecipeError for one of another target."""
    top, keys, found = Keys(folder), Keys(folder, TEXT), dialect.rename(folder)
    hidden, vocabulary = top.count("backbone_hidden_size"), keys.count("vocab_size")
    check_sizes(top, request, hidden, vocabulary)
    kinds = _layer_kinds(keys)
    switches: dict[str, Switch] = dict(_borrowed(keys, kinds, request))
    switches |= _sparse_head(top, vocabulary)
    _check_config(top, keys, len(kinds))
    shapes = _shapes(keys, kinds, hidden, vocabulary, switches)
    for each in (top, keys):
        each.refuse_unknown()
    tokens = (read_json_object(folder.path / GENERATION) or {}).get("num_assistant_tokens")
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, (NORM,), hidden,
        request.target.vocabulary_size, None, switches, check_tensors(folder, found, shapes),
        default_tokens=tokens if isinstance(tokens, int) and tokens > 0 else None,
    )  # fmt: skip


def borrowed_layers(head: HeadPlan) -> dict[str, int]:
    """Return layer type -> the target's layer whose keys and values the assistant's layers of this type attend to."""
    return {kind: int(head.switches[kind] or 0) for kind in KINDS if head.switches[kind] is not None}


def _layer_kinds(keys: Keys) -> list[str]:
    count, kinds = keys.count("num_hidden_layers"), keys.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != count or set(kinds) - set(KINDS):
        raise keys.wrong("layer_types", kinds, f"{count} times {SLIDING} or {FULL}")
    if kinds[-1] != FULL:
        raise keys.wrong("layer_types", kinds[-1], f"{FULL} of the last layer")
    return kinds


def _borrowed(keys: Keys, kinds: list[str], request: HeadRequest) -> dict[str, int | None]:
    """Return layer type -> the target's last layer of this type with keys and values; None for types that the assistant
    does not have. Raise RecipeError if the target has no such layer, or its key heads differ.
    """
    text = _target_text(request)
    theirs = _target_kinds(text, target_layers(request))
    borrowed: dict[str, int | None] = dict.fromkeys(KINDS)
    for kind in dict.fromkeys(kinds):
        layers = [layer for layer, each in enumerate(theirs) if each == kind]
        if not layers:
            raise request.origin.refusal(
                "drafter.model",
                f"an assistant with layers of type {kind} (says {keys.folder.config_file})",
                f"layers of the types that the target '{request.target.reference}' has keys and values of: "
                f"{', '.join(dict.fromkeys(theirs)) or 'none'}",
                "use the assistant that was trained for this target, or the target that it was trained for",
            )
        borrowed[kind] = layers[-1]
        ours, found = _heads(keys.values, kind, kinds.index(kind)), _heads(text, kind, layers[-1])
        pairs = (
            ("a number of key heads", ours.number, found.number),
            ("a width of key heads", ours.width, found.width),
        )
        for what, own, of_target in pairs:
            if None not in (own, of_target) and own != of_target:
                raise request.origin.refusal(
                    "drafter.model",
                    f"an assistant whose layers of type {kind} are for {what} of {own} (says "
                    f"{keys.folder.config_file})",
                    f"{of_target}, as layer {layers[-1]} of the target '{request.target.reference}' has",
                    "use the assistant that was trained for this target, or the target that it was trained for",
                )
    return borrowed


def _target_text(request: HeadRequest) -> Mapping[str, Any]:
    """Return the config of the target's text decoder."""
    folder = request.target.folder
    config = (read_json_object(folder / CONFIG) or {}) if folder is not None else {}
    return (text_config(config, folder) or config) if folder is not None else {}


def _target_kinds(text: Mapping[str, Any], layers: int) -> list[str]:
    """Return the types of the target's layers that have keys and values, by default full attention."""
    kinds = text.get("layer_types") or [FULL] * layers
    return list(kinds)[: layers - (text.get("num_kv_shared_layers") or 0)]


def _heads(text: Mapping[str, Any], kind: str, layer: int) -> Heads:
    """Return the key heads of a layer from a Gemma 4 config, new (`per_layer_config`) or old."""
    own = text.get("per_layer_config")
    count, width = text.get("num_key_value_heads"), text.get("head_dim")
    if isinstance(own, Mapping):
        changed = own.get(str(layer)) or own.get(kind) or {}
        return Heads(changed.get("num_key_value_heads", count), changed.get("head_dim", width))
    if kind == FULL and str(text.get("model_type", "")).startswith("gemma4"):
        width = text.get("global_head_dim", _GLOBAL_HEAD_DIM)
        if text.get("attention_k_eq_v"):
            count = text.get("num_global_key_value_heads") or count
    return Heads(count, width)


def _sparse_head(top: Keys, vocabulary: int) -> dict[str, Switch]:
    """Return the switches centroids, the number of token groups, and top_k, the number of groups with logits; both are
    None without a sparse head."""
    if not top.flag("use_ordered_embeddings", default=False):
        top.ignore("num_centroids", "centroid_intermediate_top_k")
        return {"centroids": None, "top_k": None}
    centroids, top_k = top.count("num_centroids"), top.count("centroid_intermediate_top_k")
    if vocabulary % centroids:
        raise top.wrong("num_centroids", centroids, f"a divisor of the {vocabulary} tokens")
    if top_k > centroids:
        raise top.wrong("centroid_intermediate_top_k", top_k, f"at most the {centroids} centroids")
    return {"centroids": centroids, "top_k": top_k}


def _check_config(top: Keys, keys: Keys, layers: int) -> None:
    keys.expect("num_kv_shared_layers", 0, layers, reason="no layer of an assistant has keys and values")
    keys.expect("hidden_size_per_layer_input", 0, reason=_NO_LAYER)
    keys.expect("vocab_size_per_layer_input", 0, reason=_NO_LAYER)
    for name in ("enable_moe_block", "use_double_wide_mlp"):
        keys.expect(name, False, reason=_NO_LAYER)
    for each in (top, keys):
        each.expect("tie_word_embeddings", True, reason="an assistant's head is its embedding")
    top.ignore(TEXT)
    keys.ignore(*_OF_LAYERS)


def _shapes(keys: Keys, kinds: list[str], hidden: int, vocabulary: int, switches: Mapping[str, Switch]) -> Shapes:
    """Return the tensors of the formula."""
    width, heads, inner = keys.count("hidden_size"), keys.count("num_attention_heads"), keys.count("intermediate_size")
    keys.ignore("num_key_value_heads", "head_dim")
    shapes: Shapes = {
        "pre_projection.weight": (width, 2 * hidden),
        "post_projection.weight": (hidden, width),
        "model.embed_tokens.weight": (vocabulary, width),
        "model.norm.weight": (width,),
    }
    for index, kind in enumerate(kinds):
        head_dim = _heads(keys.values, kind, index).width
        if not isinstance(head_dim, int):
            raise keys.wrong("head_dim", head_dim, "a whole number")
        layer: Shapes = {f"{name}_layernorm.weight": (width,) for name in (
            "input", "post_attention", "pre_feedforward", "post_feedforward")}  # fmt: skip
        layer |= {f"mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        layer |= {"mlp.down_proj.weight": (width, inner), "layer_scalar": (1,)}
        layer |= {"self_attn.q_proj.weight": (heads * head_dim, width), "self_attn.q_norm.weight": (head_dim,)}
        layer |= {"self_attn.o_proj.weight": (width, heads * head_dim)}
        if keys.values.get("attention_bias"):
            layer |= {"self_attn.q_proj.bias": (heads * head_dim,), "self_attn.o_proj.bias": (width,)}
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    centroids = switches["centroids"]
    if isinstance(centroids, int):
        shapes |= {
            "masked_embedding.centroids.weight": (centroids, width), "masked_embedding.token_ordering": (vocabulary,)
        }  # fmt: skip
    return shapes
