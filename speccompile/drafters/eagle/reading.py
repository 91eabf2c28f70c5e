"""Read the folder of an EAGLE head."""

from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.eagle.dialects import NESTED, SPECULATORS
from speccompile.drafters.proposal import read_proposal
from speccompile.drafters.target import NORM, check_sizes, resolve_taps, target_mismatch_note
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.layers import LayerShape, Shapes

_SECTIONS = {SPECULATORS: "transformer_layer_config", NESTED: "model"}
"""Dialect -> section of the config that describes the layers, if not the top level."""
_NORMS = "EAGLE's formula has no norms around fc or before the head; others are not compiled"


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    found = dialect.rename(folder)
    top, section = Keys(folder), _SECTIONS.get(dialect.name)
    keys = Keys(folder, section) if section else top
    layers = read_layers(keys, found)
    vocabulary = keys.get("vocab_size")
    check_sizes(keys, request, layers.hidden_size, vocabulary)
    # Without a key, the bias exists if its tensor does: SafeAILab's default, and other publishers omit the key.
    has_bias = "fc.bias" in found
    for each in (top, keys):
        has_bias = each.flag("bias", "fusion_bias", "eagle_fc_bias", default=has_bias)
        for norms in ("layernorms", "add_para_norm"):
            each.expect(norms, False, reason=_NORMS)
        each.expect("truncated_vocab_size", vocabulary, reason="drafts over a part of the vocabulary are not compiled")
    top.expect("transformer_layer_architecture", "LlamaDecoderLayer", reason="other layers are not compiled")
    top.ignore("speculators_model_type", "speculators_version", "method", *_SECTIONS.values())
    tokens, base = read_proposal(top)
    for each in (top, *((keys,) if section else ())):
        each.refuse_unknown()
    taps = resolve_taps(folder, request, (NORM,), 1)
    found = check_tensors(folder, found, head_shapes(layers, has_bias=has_bias))
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, taps, layers.hidden_size,
        request.target.vocabulary_size, layers, {}, found, default_tokens=tokens, base=base,
        notes=target_mismatch_note(base, request),
    )  # fmt: skip


def head_shapes(layers: LayerShape, *, has_bias: bool) -> Shapes:
    """Return the tensors of the formula: the first layer has no norm before its attention."""
    width = layers.hidden_size
    expected: Shapes = {"fc.weight": (width, 2 * width)}
    if has_bias:
        expected["fc.bias"] = (width,)
    for index in range(layers.count):
        expected |= layers.tensors(index)
    del expected["layers.0.input_layernorm.weight"]
    return expected
