"""Read the folder of a DFlash head, and the parts that DFlash and DSpark share."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from speccompile.drafters.config import read_layers
from speccompile.drafters.dflash.dialects import DEEPSPEC, SPECULATORS, TRANSFORMERS
from speccompile.drafters.dflash.sections import Sections
from speccompile.drafters.dialects import Dialect, check_tensors, check_vocabulary
from speccompile.drafters.proposal import read_proposal
from speccompile.drafters.target import (
    check_sizes,
    inputs,
    outputs,
    resolve_taps,
    switches,
    target_hidden_size,
    target_layers,
    target_mismatch_note,
)
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch, TensorSource
from speccompile.plan.layers import LayerShape, Shapes
from speccompile.tree import MOST_DEPTH

Switches = dict[str, Switch]
Tensors = Mapping[str, TensorSource]

SELECTING = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
"""Switches that only DFlash2 has."""
SLIDING = "sliding_attention"
_MASK_FILE = "mask_embedding.pt"


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    plan = read_block(folder, request, dialect, evidence, _own_switches, own_shapes)
    if "selector_rank" in plan.switches and plan.draft_vocabulary_size != plan.vocabulary_size:
        raise CheckpointError(
            f"{folder.path}: received a DFlash2 head over {plan.draft_vocabulary_size} tokens, expected all of the "
            f"target's {plan.vocabulary_size}: its selector is not defined for a part of them",
            hint="report the dialect with its config.json",
        )
    return plan


def read_block(
    folder: HeadFolder,
    request: HeadRequest,
    dialect: Dialect,
    evidence: str,
    own_switches: Callable[[Sections, Tensors], Switches],
    own: Callable[[LayerShape, Mapping[str, Switch], tuple[int, int]], Shapes],
) -> HeadPlan:
    """Read a block drafter. own_switches: returns the switches that only its method has. own: (layers, all switches,
    (target's vocabulary size, draft vocabulary size)) -> the tensors that only its method has."""
    _check_files(folder)
    found, sections = dialect.rename(folder), Sections(folder, dialect)
    hidden = sections.top.count("target_hidden_size", default=target_hidden_size(request))
    check_sizes(sections.layers, request, hidden, sections.layers.get("vocab_size"))
    _check_depth(sections, request)
    taps = resolve_taps(folder, request, _taps(sections, request, dialect), _parts(folder, found, hidden))
    layers = _layers(sections, found, dialect)
    chosen = switches(request, _switches(sections, layers, request.kind, dialect) | own_switches(sections, found))
    _check_switches(sections, chosen, layers, request.target.vocabulary_size)
    tokens, base = read_proposal(sections.top)
    sections.top.ignore("draft_vocab_size", "embed_requires_grad", "tie_weights", "num_anchors", "is_causal")
    sections.nested.expect("projector_type", request.kind, reason=f"drafter.kind is {request.kind}")
    sections.refuse_unknown()
    vocabulary = request.target.vocabulary_size
    size = found["lm_head.weight"].shape[0] if "lm_head.weight" in found else vocabulary
    expected = block_shapes(layers, len(taps), hidden, (vocabulary, size)) | own(layers, chosen, (vocabulary, size))
    ends = () if hidden != layers.hidden_size else ("embed_tokens.weight", "lm_head.weight")
    found = check_tensors(folder, found, expected, optional=(*ends, "d2t", "mask_embedding"))
    check_vocabulary(folder, found, vocabulary)
    most = int(chosen["block_size"] or 0) - first_slot(chosen)
    proposed = tokens if tokens and tokens <= most else min(most, MOST_DEPTH)
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, taps, hidden, vocabulary, layers, chosen,
        found, tokens=most, default_tokens=proposed, base=base,
        notes=target_mismatch_note(base, request),
    )  # fmt: skip


def first_slot(said: Mapping[str, Switch]) -> int:
    """Return the block position that predicts the first draft: the anchor's (0) or the first mask's (1)."""
    return 0 if said["sample_from_anchor"] else 1


def block_shapes(layers: LayerShape, taps: int, hidden: int, sizes: tuple[int, int]) -> Shapes:
    """Return the tensors of all block drafters. hidden: H of the target; sizes: of the target's and the draft
    vocabulary."""
    width = layers.hidden_size
    expected: Shapes = {
        "fc.weight": (width, taps * hidden), "hidden_norm.weight": (width,), "norm.weight": (width,),
        "embed_tokens.weight": (sizes[0], width), "lm_head.weight": (sizes[1], width), "d2t": (sizes[1],),
        "mask_embedding": (width,),
    }  # fmt: skip
    for index in range(layers.count):
        expected |= layers.tensors(index)
    return expected


def own_shapes(layers: LayerShape, said: Mapping[str, Switch], sizes: tuple[int, int]) -> Shapes:
    """Return the additional tensors of DFlash2; none for DFlash."""
    if "selector_rank" not in said:
        return {}
    kernel, group, rank = (int(said[name] or 0) for name in SELECTING[:3])
    width = layers.hidden_size
    expected: Shapes = {
        "candidate_selector.predecessor_codebook.weight": (sizes[0], rank),
        "candidate_selector.successor_codebook.weight": (sizes[0], rank),
        "candidate_selector.hidden_projection.weight": (rank, width),
    }
    for index in range(layers.count):
        for place in ("attention", "mlp"):
            expected[f"layers.{index}.{place}_conv.base_kernel"] = (2, kernel, width)
            expected[f"layers.{index}.{place}_conv.kernel_projection.weight"] = (2 * kernel * (width // group), width)
    return expected


def _own_switches(sections: Sections, found: Tensors) -> Switches:
    """Return DFlash2's switches if the file has a selector, otherwise none."""
    refuse_domino(sections)
    sections.top.expect("markov_rank", 0, reason="a Markov head makes it DSpark")
    sections.top.expect("enable_confidence_head", False, reason="a confidence head makes it DSpark")
    if not any(name.startswith("candidate_selector.") for name in found):
        return {}
    defaults = dict(zip(SELECTING, (2, 16, 256, 16), strict=True))  # speculators' defaults; other configs have all keys
    said: Switches = {name: sections.of(name).count(name, default=value) for name, value in defaults.items()}
    return said


def refuse_domino(sections: Sections) -> None:
    """Raise CheckpointError for switches of Domino's heads that change the result."""
    sections.nested.expect("shift_label", False, reason="only Domino's heads shift their labels")
    sections.nested.expect("pure_draft_prefix_len", 0, reason="only Domino's heads leave drafts uncorrected")


def _switches(sections: Sections, layers: LayerShape, kind: str, dialect: Dialect) -> Switches:
    """Return the switches of the formula in all dialects: those of the publishers' code (dflash, DeepSpec, SpecForge,
    speculators)."""
    top, of = sections.top, sections.of
    is_speculators, model = dialect.name == SPECULATORS, top.values.get("speculators_model_type")
    # All publishers train DSpark's heads so, although SpecForge samples otherwise; DeepSpec trains DFlash so, too.
    default = kind == "dspark" or dialect.name == DEEPSPEC
    soft = of("final_logit_softcapping").get("final_logit_softcapping", default=0.0)
    if not isinstance(soft, int | float):
        raise top.wrong("final_logit_softcapping", soft, "a number or null")
    full, sliding = _causal(sections, dialect)
    if is_speculators:
        full, sliding = False, not top.flag("sliding_window_non_causal", default=model == "dflash2")
    return {
        "block_size": of("block_size").count("block_size"),
        "mask_token_id": of("mask_token_id").count("mask_token_id", least=0),
        "sample_from_anchor": of("sample_from_anchor").flag("sample_from_anchor", default=default),
        "causal": full,
        "causal_sliding": sliding,
        "window_from_anchor": is_speculators,
        "input_embedding_scale": of("input_embedding_scale").number("input_embedding_scale", default=1.0),
        "output_multiplier": of("output_multiplier").number("output_multiplier", default=1.0),
        "final_logit_softcapping": max(0.0, float(soft)),
    }


def _causal(sections: Sections, dialect: Dialect) -> tuple[bool, bool]:
    """Return whether full and whether sliding layers are causal inside a block. By default, only sliding layers are,
    unless `use_swa` makes them sliding, and except in transformers' dialect."""
    said = sections.top.get("is_causal")
    said = sections.nested.get("is_causal", "causal") if said is None else said
    if said is None:
        is_forced = bool(sections.nested.values.get("use_swa")) and SLIDING not in (
            sections.layers.values.get("layer_types") or ()
        )
        return False, not is_forced and dialect.name != TRANSFORMERS
    if not isinstance(said, bool):
        raise sections.top.wrong("is_causal", said, "true, false or null")
    return said, said


def _layers(sections: Sections, found: dict[str, TensorSource], dialect: Dialect) -> LayerShape:
    """Return the layers with z-lab's windows: a position attends to tokens at a distance less than the window."""
    keys = sections.layers
    if dialect.name == TRANSFORMERS:
        for key in ("rope_parameters", "layer_types"):  # transformers has other defaults for missing keys
            if keys.values.get(key) is None:
                raise keys.wrong(key, None, "what transformers writes there")
    known = ("final_logit_softcapping",) if keys is sections.top else ()
    layers = read_layers(keys, found, known=known)
    kinds = _kinds(sections, layers.count)
    window = sections.nested.get("swa_window_size", default=keys.values.get("sliding_window"))
    if SLIDING not in kinds:
        return replace(layers, windows=(0,) * layers.count)
    if not isinstance(window, int) or window < 1:
        raise keys.wrong("sliding_window", window, "a whole number of tokens, the window of the sliding layers")
    window += dialect.name in (SPECULATORS, TRANSFORMERS)  # these dialects include the distance `window`
    return replace(layers, windows=tuple(window if kind == SLIDING else 0 for kind in kinds))


def _kinds(sections: Sections, count: int) -> list[str]:
    """Return the types of the layers: the config's, all sliding with `use_swa` (vLLM), or by Qwen 3's rule."""
    values = sections.layers.values
    kinds: list[str] | None = values.get("layer_types")
    if sections.nested.get("use_swa", default=False) and SLIDING not in (kinds or ()):
        return [SLIDING] * count
    uses = values.get("use_sliding_window")
    if kinds is None:
        first = values.get("max_window_layers", 28) if uses and values.get("sliding_window") else count
        return [SLIDING if index >= first else "full_attention" for index in range(count)]
    if uses is False and SLIDING in kinds:
        raise sections.layers.wrong("use_sliding_window", False, "true where layer_types names sliding layers")
    return kinds


def _taps(sections: Sections, request: HeadRequest, dialect: Dialect) -> tuple[str, ...]:
    """Return the taps of the config's ids: layer boundaries in speculators' dialect, otherwise layers whose outputs are
    read."""
    layers = target_layers(request)
    name = "aux_hidden_state_layer_ids" if dialect.name == SPECULATORS else "target_layer_ids"
    keys = sections.of(name)
    ids = keys.counts(name, least=-1)
    where = f"{keys.folder.config_file}: {keys.path(name)}"
    if ids is None and not request.taps:
        raise CheckpointError(
            f"{where}: received nothing, expected the layers that the head reads: no default fits all heads",
            hint="add them as the head was trained, or set drafter.taps in the recipe",
        )
    return (inputs if dialect.name == SPECULATORS else outputs)(ids or (), layers, where)


def _parts(folder: HeadFolder, found: Tensors, hidden: int) -> int | None:
    """Return the number of taps that fc reads, or None if fc is invalid: the check of the tensors reports it."""
    source = found.get("fc.weight")
    return source.shape[-1] // hidden if source and source.shape[-1] % hidden == 0 else None


def _check_files(folder: HeadFolder) -> None:
    if (folder.path / _MASK_FILE).is_file():
        raise CheckpointError(
            f"{folder.path / _MASK_FILE}: received the masks' embedding in a file of its own, expected it among the "
            "tensors: without it the head drafts badly",
            hint="store it as the tensor 'mask_embedding' in the safetensors file, and remove this one",
        )


def _check_depth(sections: Sections, request: HeadRequest) -> None:
    said, layers = sections.of("num_target_layers").get("num_target_layers"), target_layers(request)
    if said is not None and said != layers:
        raise request.origin.refusal(
            "drafter.model", f"a head for a target with {said} layers (says {sections.top.folder.config_file})",
            f"one for {layers}, the layers of the target '{request.target.reference}'",
            "use the head that was trained for this target, or the target that this head was trained for",
        )  # fmt: skip


def _check_switches(sections: Sections, said: Mapping[str, Switch], layers: LayerShape, vocabulary: int) -> None:
    size, mask = int(said["block_size"] or 0), int(said["mask_token_id"] or 0)
    least = 1 + first_slot(said)
    if size < least:
        raise sections.top.wrong("block_size", size, f"a whole number from {least} on")
    if mask >= vocabulary:
        raise sections.top.wrong("mask_token_id", mask, f"a token from 0 to {vocabulary - 1}, the target's")
    shortest = min((window for window in layers.windows if window), default=size)
    if shortest < size:
        raise sections.layers.wrong("sliding_window", shortest, f"one that holds a block of {size}")
    for name, most in (("conv_kernel_size", size), ("selector_top_k", vocabulary)):
        if not 1 <= int(said.get(name) or 1) <= most:
            raise sections.top.wrong(name, said[name], f"a whole number from 1 to {most}")
    group = int(said.get("conv_group_size") or 1)
    if layers.hidden_size % group:
        raise sections.top.wrong("conv_group_size", group, f"a divisor of {layers.hidden_size}, the hidden size")
