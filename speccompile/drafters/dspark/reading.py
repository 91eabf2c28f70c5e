"""Read the folder of a DSpark head."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speccompile.drafters.dflash.dialects import DEEPSPEC
from speccompile.drafters.dflash.reading import Switches, Tensors, first_slot, read_block, refuse_domino
from speccompile.drafters.dflash.sections import Sections
from speccompile.drafters.dialects import Dialect
from speccompile.drafters.method import MethodRequest
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch
from speccompile.plan.layers import LayerShape, Shapes

MARKOV = ("vanilla", "gated", "rnn")


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target, and for a
    confidence threshold without a confidence head."""
    plan = read_block(folder, request, dialect, evidence, _own_switches, own_shapes)
    if plan.switches["markov_rank"] and plan.switches["markov_head_type"] == "rnn" and first_slot(plan.switches):
        # The memory starts at the anchor in the only library that trains this, and after it in other decoding loops.
        raise Sections(folder, dialect).top.wrong(
            "markov_head_type", "rnn", "vanilla or gated where sample_from_anchor is false: what a recurrent head "
            "remembers of the anchor is not settled"
        )  # fmt: skip
    if request.threshold is not None and not plan.switches["confidence_head"]:
        raise request.origin.refusal(
            "drafter.threshold", str(request.threshold), f"none: the head in {folder.path} has no confidence head",
            "remove drafter.threshold",
        )  # fmt: skip
    said = (folder.value("sample_from_anchor"), folder.value("dflash_config.sample_from_anchor"))
    if dialect.name != DEEPSPEC and said == (None, None) and "sample_from_anchor" not in request.switches:
        note = (
            "the head does not say sample_from_anchor: taken as true, which is how DSpark is trained; where hardly any "
            "draft is accepted, set drafter.switches.sample_from_anchor to false"
        )
        plan = replace(plan, notes=(*plan.notes, note))
    return plan


def decide(request: MethodRequest) -> Mapping[str, Any]:
    """Return no further fields. Raise RecipeError for a confidence threshold of a tree: its paths do not end early."""
    if request.section.threshold is not None and request.tree.kind != "chain":
        raise request.origin.refusal(
            "drafter.threshold", str(request.section.threshold),
            f"none for a {request.tree.kind} tree: only a chain ends early",
            "remove drafter.threshold, or drafter.tree",
        )  # fmt: skip
    return {}


def own_shapes(layers: LayerShape, said: Mapping[str, Switch], sizes: tuple[int, int]) -> Shapes:
    """Return DSpark's additional tensors. sizes: of the target's vocabulary, which has the previous token, and of the
    draft vocabulary."""
    rank, width = int(said["markov_rank"] or 0), layers.hidden_size
    expected: Shapes = {}
    if rank:
        expected = {"markov_head.markov_w1.weight": (sizes[0], rank), "markov_head.markov_w2.weight": (sizes[1], rank)}
        match said["markov_head_type"]:
            case "gated":
                expected |= {
                    "markov_head.gate_proj.weight": (rank, width + rank),
                    "markov_head.gate_proj.bias": (rank,),
                }
            case "rnn":
                joint = "markov_head.joint_proj"
                expected |= {f"{joint}.weight": (3 * rank, 2 * rank + width), f"{joint}.bias": (3 * rank,)}
    if said["confidence_head"]:
        read = width + (rank if said["confidence_head_with_markov"] else 0)
        expected |= {"confidence_head.proj.weight": (1, read), "confidence_head.proj.bias": (1,)}
    return expected


def _own_switches(sections: Sections, found: Tensors) -> Switches:
    """Return DSpark's switches. Defaults are those of speculators in its dialect; in other dialects, no Markov head."""
    refuse_domino(sections)
    top, of = sections.top, sections.of
    is_speculators = top.values.get("speculators_model_type") is not None
    of("attention_mode", "confidence_head_alpha")  # of training
    rank = of("markov_rank").count("markov_rank", default=256 if is_speculators else 0, least=0)
    kind = of("markov_head_type").word("markov_head_type", default=MARKOV[0], known=MARKOV)
    has_confidence = of("enable_confidence_head").flag(
        "enable_confidence_head", default="confidence_head.proj.weight" in found
    )
    with_markov = of("confidence_head_with_markov").flag("confidence_head_with_markov", default=is_speculators)
    if has_confidence and with_markov and not rank:
        raise top.wrong("confidence_head_with_markov", True, "false where markov_rank is 0")
    return {
        "markov_rank": rank,
        "markov_head_type": kind,
        "confidence_head": has_confidence,
        "confidence_head_with_markov": with_markov and has_confidence,
    }
