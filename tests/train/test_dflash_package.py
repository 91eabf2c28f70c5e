"""Exported heads are loaded back by the libraries that publish such heads: z-lab's `dflash`, and SpecForge for DSpark
and Domino.

They are in no environment of ours: `pip install --no-deps dflash==0.1.0 specforge==0.2.0` beside it, as
scripts/references says.
"""

import pytest
import torch

from tests.train import tiny_drafters
from tests.train.students import ANCHORS, LENGTH, TOLERANCE, check_learns, seen_by

DEPTH = 3


def exported_head(folder, kind):
    """Return a head that began anew, learnt a step and was exported to <folder>/exported: the target, the student, and
    texts."""
    model = tiny_drafters.target(folder)
    tiny_drafters.begin(folder, model, kind, sizes={"layers": 2}, taps=("layers.0.output", "layers.1.output"))
    plan = tiny_drafters.planned(folder, kind)
    student = check_learns(plan, DEPTH, ("markov_w1",))
    student.save(folder / "exported", torch.float32)
    return model, student, seen_by(plan, student)


def loaded(library, folder):
    """Load its own class over the folder: every tensor of both is one of the other."""
    model, report = library.from_pretrained(folder, output_loading_info=True, attn_implementation="sdpa")
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def blocks(model, library, seen, mask):
    """Return of every anchor: its text, and the library's hidden states of the block behind the features before it."""
    size = library.block_size
    for row, anchors in enumerate(ANCHORS.tolist()):
        for place, anchor in enumerate(anchors):
            tokens = torch.tensor([[int(seen.tokens[row, anchor]), *[mask] * (size - 1)]])
            hidden = library(
                target_hidden=seen.features[row, None, :anchor], noise_embedding=model.get_input_embeddings()(tokens),
                position_ids=torch.arange(anchor + size)[None],
            )  # fmt: skip
            yield row, place, anchor, hidden


def test_z_lab_s_own_model_says_the_same(tmp_path):
    published = pytest.importorskip("dflash.model", reason="z-lab's dflash is not installed")
    model, student, seen = exported_head(tmp_path, "dflash")
    library = loaded(published.DFlashDraftModel, tmp_path / "exported")
    assert list(library.target_layer_ids) == [0, 1]
    said = torch.stack(student(seen, ANCHORS, DEPTH), 2)
    for row, place, _, hidden in blocks(model, library, seen, library.mask_token_id):
        theirs = library.compute_logits(hidden[:, 1:], model.lm_head)[0]
        torch.testing.assert_close(said[row, place], theirs, **TOLERANCE)


def test_specforge_s_own_dspark_says_the_same(tmp_path):
    published = pytest.importorskip("specforge.modeling.draft.dspark", reason="SpecForge is not installed")
    model, student, seen = exported_head(tmp_path, "dspark")
    library = loaded(published.DSparkDraftModel, tmp_path / "exported")
    said = torch.stack(student(seen, ANCHORS, DEPTH), 2)
    confidence = torch.stack(student.confidences, 2)
    for row, place, anchor, hidden in blocks(model, library, seen, library.mask_token_id):
        assert anchor + DEPTH <= LENGTH
        before = seen.tokens[row, None, anchor : anchor + DEPTH]
        theirs = library.apply_logits_head(model.lm_head(hidden), prev_token_ids=before, hidden_states=hidden)[0]
        torch.testing.assert_close(said[row, place], theirs, **TOLERANCE)
        theirs = library.predict_confidence(hidden, prev_token_ids=before)[0]
        torch.testing.assert_close(confidence[row, place], theirs, **TOLERANCE)


def test_specforge_s_own_domino_says_the_same(tmp_path):
    published = pytest.importorskip("specforge.modeling.draft.domino", reason="SpecForge is not installed")
    model, student, seen = exported_head(tmp_path, "domino")
    library = loaded(published.DominoDraftModel, tmp_path / "exported")
    said = torch.stack(student(seen, ANCHORS, DEPTH), 2)
    for row, place, anchor, hidden in blocks(model, library, seen, library.mask_token_id):
        before = model.get_input_embeddings()(seen.tokens[row, None, anchor : anchor + DEPTH])
        theirs = library.apply_logits_head(
            model.lm_head(hidden)[:, None], prev_token_embeddings=before[:, None], hidden_states=hidden[:, None]
        )
        torch.testing.assert_close(said[row, place], theirs[0, 0], **TOLERANCE)
