"""Read the folder of an EAGLE-3 head."""

from collections.abc import Mapping

from speccompile.drafters.config import read_layers
from speccompile.drafters.dialects import LLAMA_CPP, Dialect, Keys, check_tensors, check_vocabulary
from speccompile.drafters.eagle3.dialects import SPECULATORS
from speccompile.drafters.eagle3.taps import IDS
from speccompile.drafters.proposal import read_proposal
from speccompile.drafters.target import (
    NORM,
    check_sizes,
    inputs,
    outputs,
    resolve_taps,
    switches,
    target_layers,
    target_mismatch_note,
)
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch, TensorSource
from speccompile.plan.layers import LayerShape, Shapes


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    keys = Keys(folder)
    nested = Keys(folder, "eagle_config")
    found = dialect.rename(folder)
    of_layers = Keys(folder, "transformer_layer_config") if dialect.name == SPECULATORS else keys
    # The config has target_hidden_size if the head's width differs from the target's.
    hidden = keys.count("target_hidden_size", default=of_layers.count("hidden_size"))
    check_sizes(keys, request, hidden, of_layers.get("vocab_size"))
    layers = read_layers(of_layers, found)
    keys.ignore("draft_vocab_size", "truncated_vocab_size", "speculators_model_type", "transformer_layer_config",
                "eagle_config", "embed_requires_grad", "speculators_version", "tie_weights")  # fmt: skip
    said = _switches(keys, nested, found, dialect)
    default = (NORM,) if said.pop("one tap") else _taps(folder, keys, nested, request, dialect)
    wanted, rest = divmod(found["fc.weight"].shape[-1], hidden) if "fc.weight" in found else (1, 0)
    if rest:
        source = found["fc.weight"]
        raise request.origin.refusal(
            "drafter.model", f"a head whose '{source.name}' in {folder.path / source.file} reads rows of width "
            f"{source.shape[-1]}", f"a multiple of {hidden}, the hidden size of the target",
            "use the head that was trained for this target",
        )  # fmt: skip
    taps = resolve_taps(folder, request, default, wanted)
    chosen = switches(request, said)
    tokens, base = read_proposal(keys)
    for each in (keys, nested, *((of_layers,) if of_layers is not keys else ())):
        each.refuse_unknown()
    sizes = (hidden, request.target.vocabulary_size)
    size = found["lm_head.weight"].shape[0] if "lm_head.weight" in found else sizes[1]
    expected = head_shapes(layers, len(taps), sizes, size, found, chosen)
    # llama.cpp leaves out an output head that is the target's; in other dialects a part of the folder is missing.
    ends = ("lm_head.weight",) if dialect.name == LLAMA_CPP and layers.hidden_size == hidden else ()
    found = check_tensors(folder, found, expected, optional=("embed_tokens.weight", "d2t", "fc.weight", *ends))
    check_vocabulary(folder, found, request.target.vocabulary_size)
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, taps, *sizes, layers, chosen, found,
        default_tokens=tokens, base=base, notes=target_mismatch_note(base, request),
    )  # fmt: skip


def _switches(keys: Keys, nested: Keys, found: dict[str, TensorSource], dialect: Dialect) -> dict[str, Switch]:
    """Return the switches of the formula, as SafeAILab's code, SpecForge and speculators' `Eagle3DraftModel` read them.
    By default, norms exist if their tensors do."""
    nested.ignore(IDS, "parallel_draft_step", "num_hidden_layers")
    said: dict[str, Switch] = {
        "norm_before_residual": keys.flag("norm_before_residual", default=dialect.name == SPECULATORS),
        "norm_output": keys.flag("norm_output", default=False),
        "norm_before_fc": keys.flag("norm_before_fc", default="input_norm.weight" in found),
        "fc_norm": keys.flag("fc_norm", default="fc_norm.0.weight" in found),
        "use_input_layernorm_in_first_layer": nested.flag("use_input_layernorm_in_first_layer", default=True),
        "use_last_layernorm": nested.flag("use_last_layernorm", default=True),
    }
    nested.expect("use_mtp_layernorm", False, reason="heads with norms of MTP are not compiled")
    return said | {"one tap": not nested.flag("use_aux_hidden_state", default=True)}


def _taps(folder: HeadFolder, keys: Keys, nested: Keys, request: HeadRequest, dialect: Dialect) -> tuple[str, ...]:
    """Return the taps of the config's ids: layer boundaries in a flat key, as speculators write, otherwise layers whose
    outputs are read."""
    layers = target_layers(request)
    flat, below, deep = keys.counts(IDS), nested.counts(IDS), keys.counts("target_layer_ids", least=-1)
    where = str(folder.config_file)
    if flat is not None:
        return inputs(flat, layers, f"{where}: {IDS}")
    if deep is not None:
        return outputs(deep, layers, f"{where}: target_layer_ids")
    if below is None:
        return inputs((2, layers // 2, layers - 3), layers, f"{where}: no {IDS}, whose default needs a deeper target")
    # The id after the last layer cannot mean an output: heads of gpt-oss write boundaries.
    return (inputs if max(below) == layers else outputs)(below, layers, f"{where}: {nested.path(IDS)}")


def head_shapes(
    layers: LayerShape,
    taps: int,
    sizes: tuple[int, int],
    size: int,
    found: Mapping[str, TensorSource],
    said: Mapping[str, Switch],
) -> Shapes:
    """Return the tensors of the formula. sizes: hidden size and vocabulary size of the target; size: of the draft
    vocabulary; found: names of the tensors that are present."""
    width, (hidden, vocabulary) = layers.hidden_size, sizes
    expected: Shapes = {"lm_head.weight": (size, width), "embed_tokens.weight": (vocabulary, width), "d2t": (size,)}
    if taps > 1 or "fc.weight" in found or hidden != width:
        expected["fc.weight"] = (width, taps * hidden)
    for index in range(layers.count):
        expected |= layers.tensors(index, 2 * width if index == 0 else None)
    expected["layers.0.hidden_norm.weight"] = (width,)
    if "fc.bias" in found:
        expected["fc.bias"] = (width,)
    if said["use_last_layernorm"]:
        expected["norm.weight"] = (width,)
    if not said["use_input_layernorm_in_first_layer"]:
        del expected["layers.0.input_layernorm.weight"]
    if said["norm_before_fc"]:
        expected["input_norm.weight"] = (taps * hidden,)
    if said["fc_norm"]:
        expected |= {f"fc_norm.{index}.weight": (hidden,) for index in range(taps)}
    return expected
