"""DFlash and DSpark as they learn: what they say, what learns, and what they export."""

from functools import partial

import pytest

from speccompile.errors import CheckpointError
from tests.compile.eager_rounds import check_generation, plan_of
from tests.heads import dflash as heads
from tests.train.students import BUILT, check_learns, check_said, check_saved, student_of

SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 6}
SCALES = {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "final_logit_softcapping": 4.0}

WRITERS = {
    "dflash, z-lab": (heads.zlab, 4),
    "dflash, causal in both kinds of layers": (partial(heads.zlab, is_causal=True, **SLIDING), 3),
    "dflash, scaled": (partial(heads.zlab, own=SCALES, **SLIDING), 4),
    "dflash, anchor, own ends": (heads.deepspec, 5),
    "dflash, own vocabulary, window from the anchor": (
        partial(heads.speculators, draft_size=64, transformer_layer_config=SLIDING), 4,
    ),
    "dspark, SpecForge": (heads.specforge, 5),
    "dspark, rnn, from the first mask": (
        partial(heads.specforge, own={"markov_head_type": "rnn", "sample_from_anchor": True}), 5,
    ),
    "dspark, gated": (partial(heads.specforge, own={"markov_head_type": "gated"}), 2),
    "dspark, own ends, no confidence": (
        partial(heads.deepspec, markov=heads.MARKOV | {"enable_confidence_head": False,
                                                       "confidence_head_with_markov": False}), 4,
    ),
    "domino, from the first mask": (heads.domino, 4),
    "domino, own vocabulary": (partial(heads.speculators, kind="domino", draft_size=64), 4),
    "dspark, own vocabulary": (partial(heads.speculators, kind="dspark", draft_size=64), 4),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_blocks_of_a_text_say_what_the_reference_says_of_each(tmp_path, name):
    write, depth = WRITERS[name]
    check_said(plan_of(tmp_path, write, "tokens: 2"), depth)


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_trained_learns_and_comes_back(tmp_path, name):
    write, depth = WRITERS[name]
    plan = plan_of(tmp_path, write, "tokens: 2")
    check_saved(plan, check_learns(plan, depth), depth)


@pytest.mark.sweep(BUILT)
@pytest.mark.parametrize("name", ["dflash, z-lab", "dspark, SpecForge"])
def test_what_is_left_is_built(tmp_path, name):
    write, depth = WRITERS[name]
    plan = plan_of(tmp_path, write, "tokens: 2")
    check_generation(check_saved(plan, check_learns(plan, depth), depth), tmp_path)


@pytest.mark.parametrize("write", [heads.dflash2, partial(heads.speculators, kind="dflash2")])
def test_heads_with_a_selector_are_refused(tmp_path, write):
    with pytest.raises(CheckpointError, match="received a DFlash2 head to train, expected a DFlash head"):
        student_of(plan_of(tmp_path, write, "tokens: 2"), 2)
