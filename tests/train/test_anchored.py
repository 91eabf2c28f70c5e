"""Students whose drafts cost a block each: at the ends of texts, in half precision, and what DSpark learns besides."""

import pytest
import torch
from torch.nn import functional

from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.trainable import TeacherBatch, has_label
from tests.train import tiny_drafters

KINDS = ("dflash", "dspark", "domino", "kangaroo", "pass", "bita", "pard", "pard2")
DEPTH = 3


@pytest.fixture(params=KINDS)
def case(request, tmp_path):
    """Return a new student, and two texts."""
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, request.param)
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, request.param), DEPTH)
    return student, tiny_drafters.seen(model, student.taps)


def said(student, seen, anchors):
    with torch.no_grad():
        return student(seen, anchors, DEPTH)


def test_what_an_anchor_says_is_its_own(case):
    """Change what stands behind it, and other anchors: no block sees another, nor later tokens but those that its own
    drafts stand for."""
    student, seen = case
    anchors = torch.tensor([[2, 5, 6, 9], [1, 3, 8, 9]])
    together = said(student, seen, anchors)
    other = torch.Generator().manual_seed(1)
    behind = torch.arange(tiny_drafters.LENGTH) > 9 + DEPTH
    tokens = torch.where(behind, torch.randint(3, 90, seen.tokens.shape, generator=other), seen.tokens)
    changed = TeacherBatch(
        tokens, seen.attention_mask, seen.loss_mask,
        torch.where(behind[:, None], torch.randn(seen.features.shape, generator=other), seen.features),
        torch.where(behind[:, None], torch.randn(seen.logits.shape, generator=other), seen.logits),
    )  # fmt: skip
    for place in range(4):
        alone = said(student, changed, anchors[:, place : place + 1])
        for draft in range(DEPTH):
            torch.testing.assert_close(together[draft][:, place], alone[draft][:, 0], rtol=1e-4, atol=1e-5)


def test_anchors_at_the_end_of_a_text_disturb_no_other(case):
    student, seen = case
    last = tiny_drafters.LENGTH - 1
    together, alone = (said(student, seen, torch.tensor([each, each])) for each in ([4, last - 1, last], [4]))
    for draft in range(DEPTH):
        assert together[draft].isfinite().all()
        torch.testing.assert_close(together[draft][:, 0], alone[draft][:, 0], rtol=1e-4, atol=1e-5)


def test_half_precision_gives_gradients_in_float32(case):
    student, seen = case
    anchors = torch.tensor([[2, 5], [1, 9]])
    with torch.autocast("cpu", torch.bfloat16):
        losses = [
            functional.cross_entropy(each.float().flatten(0, 1), torch.arange(4))
            for each in student(seen, anchors, DEPTH)
        ]
    sum(losses).backward()
    trained = [each for each in student.parameters() if each.requires_grad]
    given = [each.grad for each in trained if each.grad is not None]
    assert given
    assert all(each.dtype == torch.float32 and each.isfinite().all() for each in given)


def test_the_confidence_head_learns_the_chance_of_acceptance(tmp_path):
    """Binary cross entropy, of drafts that stand for tokens that are learnt; nothing but that head has a gradient."""
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, "dspark")
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, "dspark"), DEPTH)
    seen = tiny_drafters.seen(model, student.taps)
    seen.loss_mask[0, :8] = False
    anchors = torch.tensor([[4, 6, tiny_drafters.LENGTH - 2], [2, 3, 9]])
    drafted = student(seen, anchors, DEPTH)
    accepted = [torch.rand(anchors.shape, generator=torch.Generator().manual_seed(draft)) for draft in range(DEPTH)]
    losses = student.own_loss(seen, anchors, drafted, accepted)
    found, counted = [], []
    for draft in range(DEPTH):
        for row in range(2):
            for place in range(3):
                token = int(anchors[row, place]) + 1 + draft
                if token < tiny_drafters.LENGTH and seen.loss_mask[row, token]:
                    confidence, chance = (
                        torch.sigmoid(student.confidences[draft][row, place]),
                        accepted[draft][row, place],
                    )
                    found.append(losses[row, place, draft])
                    counted.append(-(chance * confidence.log() + (1 - chance) * (1 - confidence).log()))
    assert 0 < len(counted) < 2 * 3 * DEPTH
    torch.testing.assert_close(torch.stack(found), torch.stack(counted))
    torch.stack(found).sum().backward()
    moved = {name for name, each in student.network.named_parameters() if each.grad is not None and each.grad.any()}
    assert moved == {"confidence_head.proj.weight", "confidence_head.proj.bias"}


def test_what_is_guessed_lies_in_the_text_and_is_learnt():
    tokens = torch.zeros(1, 5, dtype=torch.int64)
    real, learnt = torch.tensor([[True, True, True, True, False]]), torch.tensor([[False, True, False, True, True]])
    seen = TeacherBatch(tokens, real, learnt, torch.zeros(1, 5, 0), torch.zeros(1, 5, 2))
    places = torch.tensor([[1, 2, 3, 4, 5]])
    assert has_label(seen, places).tolist() == [[True, False, True, False, False]]
    assert has_label(seen, places[..., None])[0, :, 0].tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("kind", [*KINDS, "eagle3", "medusa", "model"])
def test_the_plan_knows_what_the_student_is(kind, tmp_path):
    """Compare with the plan, made without torch: whether places cost a block each, and whether drafts depend on their
    depth."""
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind)
    student, training = (
        tiny_drafters.student(tiny_drafters.context(tmp_path, model, kind), DEPTH),
        DRAFTING_METHODS[kind].training,
    )
    assert (training.anchors > 0, training.is_depth_independent) == (not student.every, student.even)
