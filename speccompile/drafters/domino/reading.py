"""Read the folder of a Domino head."""

from collections.abc import Mapping

from speccompile.drafters.dflash.reading import Switches, Tensors, read_block
from speccompile.drafters.dflash.sections import Sections
from speccompile.drafters.dialects import Dialect
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest, Switch
from speccompile.plan.layers import LayerShape, Shapes


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read a head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    plan = read_block(folder, request, dialect, evidence, _own_switches, own_shapes)
    assert plan.tokens is not None, "a block has a size"
    if int(plan.switches["pure_draft_prefix_len"] or 0) >= plan.tokens:
        section = Sections(folder, dialect).of("pure_draft_prefix_len")
        expected = f"less than {plan.tokens}, the drafts of a block: nothing would be corrected"
        raise section.wrong("pure_draft_prefix_len", plan.switches["pure_draft_prefix_len"], expected)
    return plan


def own_shapes(layers: LayerShape, said: Mapping[str, Switch], sizes: tuple[int, int]) -> Shapes:
    """Return Domino's additional tensors. sizes: of the target's vocabulary and the draft vocabulary."""
    width, state, rank = layers.hidden_size, int(said["gru_hidden_dim"] or 0), int(said["emb_dim"] or 0)
    return {
        "prefix_gru.weight_ih_l0": (3 * state, width),
        "prefix_gru.weight_hh_l0": (3 * state, state),
        "up_proj.weight": (rank, width + state),
        "out_proj.weight": (sizes[1], rank),
    }


def _own_switches(sections: Sections, found: Tensors) -> Switches:
    """Return Domino's switches. Defaults are those of speculators in its dialect; other heads have all sizes."""
    is_speculators = sections.top.values.get("speculators_model_type") is not None
    defaults = (1024, 256, 1) if is_speculators else (None, None, 0)
    rank = "logits_correction_emb_dim" if is_speculators else "emb_dim"
    shifted = sections.of("shift_label").flag("shift_label", default=is_speculators)
    return {
        "sample_from_anchor": sections.of("sample_from_anchor").flag("sample_from_anchor", default=shifted),
        "gru_hidden_dim": sections.of("gru_hidden_dim").count("gru_hidden_dim", default=defaults[0]),
        "emb_dim": sections.of(rank).count(rank, default=defaults[1]),
        "pure_draft_prefix_len": sections.of("pure_draft_prefix_len").count(
            "pure_draft_prefix_len", default=defaults[2], least=0
        ),
    }
