"""The loss of a step: which drafts count and how much, and that its parts add up to the whole."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.plan.training_plan import LossPlan
from speccompile.train.losses import divergence
from speccompile.train.objective import DPACE_FLOOR, Objective, dpace, drawn_anchors

BATCH, LENGTH, SIZE, DEPTH = 6, 12, 11, 3
PLAN = LossPlan("fkl", 0.5, 0.0, "decay", 0.8, "target", 0.5, anchors=3, drop=None)


def seen(seed=0, batch=BATCH):
    """Return prompts of 2 to 7 tokens, answers that end anywhere, some of them longer than others."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, SIZE, (batch, LENGTH), generator=generator)
    lengths = torch.randint(8, LENGTH + 1, (batch, 1), generator=generator)
    prompts = torch.randint(2, 8, (batch, 1), generator=generator)
    real = torch.arange(LENGTH) < lengths
    logits = 2 * torch.randn(batch, LENGTH, SIZE, generator=generator)
    return TeacherBatch(tokens, real, real & (torch.arange(LENGTH) >= prompts), torch.zeros(batch, LENGTH, 0), logits)


def rows(whole, chosen):
    return TeacherBatch(*(getattr(whole, field.name)[chosen] for field in dataclasses.fields(TeacherBatch)))


class Table(TrainableDrafter):
    """Says of a draft what stands in a table, by the token before it, the draft's depth and the anchor's token."""

    def __init__(self, every=True, even=False, vocabulary=None, confident=False):
        super().__init__()
        self.every, self.even, self.vocabulary, self.confident = every, even, vocabulary, confident
        torch.manual_seed(7)
        size = SIZE if vocabulary is None else len(vocabulary)
        self.table = nn.Parameter(torch.randn(SIZE, DEPTH, size))
        self.sure = nn.Parameter(torch.randn(SIZE))
        self.asked = []

    def forward(self, seen, anchors, depth):
        self.asked.append((anchors, depth))
        last = seen.tokens.shape[1] - 1
        before = [seen.tokens.gather(1, (anchors + step).clamp(max=last)) for step in range(depth)]
        return [self.table[each, 0 if self.even else step] for step, each in enumerate(before)]

    def own_loss(self, seen, anchors, drafted, accepted):
        if not self.confident:
            return None
        sure = self.sure[seen.tokens.gather(1, anchors)]
        both = [nn.functional.binary_cross_entropy_with_logits(sure, each, reduction="none") for each in accepted]
        return torch.stack(both, -1)

    def save(self, folder, dtype):
        raise NotImplementedError


def by_hand(student, whole, plan, anchors_of):
    """Return total and weight, draft by draft."""
    total = weight = 0.0
    for row, at in itertools.product(range(len(whole.tokens)), range(1 if student.even else DEPTH)):
        for anchor in anchors_of(row):
            place = anchor + 1 + at
            if place >= LENGTH or not (whole.attention_mask & whole.loss_mask)[row, place]:
                continue
            one = torch.tensor([[anchor]])
            said = student(rows(whole, [row]), one, DEPTH)[at][0, 0]
            worth = divergence(
                plan.kind, said, whole.logits[row, place - 1], whole.tokens[row, place],
                hard=plan.hard, vocabulary=student.vocabulary,
            )  # fmt: skip
            share = plan.decay**at
            total, weight = total + share * worth.loss, weight + share * worth.counted.float()
    return total, weight


KEPT = torch.tensor([9, 1, 4, 7, 2, 0])
STUDENTS = {
    "every": {},
    "even": {"even": True},
    "block": {"every": False},
    "vocabulary": {"vocabulary": KEPT},
    "confident": {"every": False, "confident": True},
}


@pytest.mark.parametrize("kind", ["fkl", "ce", "hybrid"])
@pytest.mark.parametrize("name", ["every", "even", "block", "vocabulary"])
def test_drafts_that_count_are_those_that_are_real_and_learnt(kind, name):
    student, whole, plan = Table(**STUDENTS[name]), seen(), dataclasses.replace(PLAN, kind=kind, hard=0.0)
    found = Objective(plan, DEPTH)(student, whole, 3, 5)
    anchors, chosen = drawn_anchors(whole, plan.anchors, 3, 5)

    def anchors_of(row):
        return range(1, LENGTH - 1) if student.every or student.even else anchors[row][chosen[row]].tolist()

    total, weight = by_hand(student, whole, plan, anchors_of)
    torch.testing.assert_close(found.total, total)
    torch.testing.assert_close(found.weight, weight)


@pytest.mark.parametrize("depth_weights", ["decay", "dpace"])
@pytest.mark.parametrize("name", STUDENTS)
def test_parts_add_up_to_the_whole(name, depth_weights):
    plan = dataclasses.replace(PLAN, depth_weights=depth_weights)
    whole, objective = seen(), Objective(plan, DEPTH)

    def gradients(parts):
        student = Table(**STUDENTS[name])
        found = [objective(student, rows(whole, part), 1, 4) for part in parts]
        (sum(each.total for each in found) / sum(each.weight for each in found)).backward()
        shown = {key: [sum(each.shown[key][i] for each in found) for i in (0, 1)] for key in found[0].shown}
        return {key: value.grad for key, value in student.named_parameters() if value.grad is not None}, shown

    expected = gradients([range(BATCH)])
    assert expected[0]["table"].abs().sum() > 0
    assert ("sure" in expected[0]) == (name == "confident")
    for parts in ([[0], [1, 2, 3, 4, 5]], [[3, 1], [5, 0], [4, 2]], [[each] for each in range(BATCH)]):
        torch.testing.assert_close(gradients(parts), expected)


def test_a_part_of_which_nothing_is_learnt_adds_nothing_and_still_has_a_graph():
    whole = seen()
    nothing = dataclasses.replace(whole, loss_mask=torch.zeros_like(whole.loss_mask))
    for each in STUDENTS.values():
        student = Table(**each)
        found = Objective(PLAN, DEPTH)(student, nothing, 0, 0)
        found.total.backward()
        assert (found.total.item(), found.weight.item()) == (0, 0)
        assert (student.table.grad == 0).all()


def test_padding_is_not_looked_at():
    whole = seen()
    spoilt = dataclasses.replace(
        whole,
        logits=torch.where(whole.attention_mask[..., None], whole.logits, torch.nan),
        loss_mask=whole.loss_mask | ~whole.attention_mask,
    )
    for each in STUDENTS.values():
        found, expected = (Objective(PLAN, DEPTH)(Table(**each), texts, 0, 0) for texts in (spoilt, whole))
        torch.testing.assert_close(found.total, expected.total)
        torch.testing.assert_close(found.weight, expected.weight)


def test_what_is_the_same_at_every_depth_is_asked_for_once():
    student = Table(even=True)
    found = Objective(PLAN, DEPTH)(student, seen(), 0, 0)
    ((anchors, depth),) = student.asked
    assert depth == 1
    assert anchors.tolist() == [list(range(1, LENGTH - 1))] * BATCH
    assert sorted(found.shown) == ["accepted/1", "loss/1", "right/1"]


def test_curves_show_sums_and_counts_by_depth():
    """Count for a drafter that says what the target says: all is accepted and right, but where it lacks the token."""
    whole, kept = seen(), KEPT

    class Same(Table):
        def forward(self, seen, anchors, depth):
            last = seen.tokens.shape[1] - 1
            places = [(anchors + step).clamp(max=last) for step in range(depth)]
            logits = [seen.logits.gather(1, each[..., None].expand(-1, -1, SIZE)) for each in places]
            return [(each if self.vocabulary is None else each[..., kept]) + 0 * self.table.sum() for each in logits]

    found = Objective(PLAN, DEPTH)(Same(), whole, 0, 0).shown
    counted = whole.loss_mask[:, 2:].sum()
    for depth in range(1, DEPTH + 1):
        count = whole.loss_mask[:, 1 + depth :].sum()
        for name, share in (("loss", 0), ("accepted", 1), ("right", 1)):
            total, drafts = found[f"{name}/{depth}"]
            assert drafts == count
            assert total.item() == pytest.approx(share * count.item(), abs=1e-4)
    found = Objective(PLAN, DEPTH)(Same(vocabulary=kept), whole, 0, 0).shown
    best = whole.logits[:, 1:-1].argmax(-1)[whole.loss_mask[:, 2:]]
    inside = torch.isin(best, kept).sum()
    assert 0 < inside < counted
    assert (found["right/1"][0], found["right/1"][1]) == (inside, counted)
    assert found["loss/1"][1] == inside
    mass = whole.logits.softmax(-1)[:, 1:-1][whole.loss_mask[:, 2:]][:, kept].sum()
    assert found["accepted/1"][0].item() == pytest.approx(mass.item(), rel=1e-5)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9))
def test_anchors_are_different_places_before_something_learnt(seed, step, count):
    whole = seen(seed % 1000)
    anchors, chosen = drawn_anchors(whole, count, seed, step)
    wanted = whole.loss_mask & whole.attention_mask
    for row in range(BATCH):
        places = anchors[row][chosen[row]].tolist()
        assert places == sorted(set(places))
        assert len(places) == min(count, int(wanted[row, 2:].sum()))
        assert all(each >= 1 and wanted[row, each + 1] for each in places)
        assert anchors[row].tolist() == sorted(anchors[row].tolist())
    again, of_some = drawn_anchors(whole, count, seed, step), drawn_anchors(rows(whole, [4, 2]), count, seed, step)
    assert torch.equal(again[0], anchors)
    for found, row in ((0, 4), (1, 2)):
        assert of_some[0][found][of_some[1][found]].tolist() == anchors[row][chosen[row]].tolist()


def test_anchors_do_not_know_how_wide_the_batch_is():
    """Parts are padded as they are; what lies in the padding is nothing."""
    whole = seen()
    wider = {field.name: getattr(whole, field.name) for field in dataclasses.fields(TeacherBatch)}
    for name in ("tokens", "attention_mask", "loss_mask"):
        wider[name] = nn.functional.pad(wider[name], (0, 5), value=True)
    wider["attention_mask"][:, LENGTH:] = False
    for one, other in zip(drawn_anchors(whole, 3, 0, 0), drawn_anchors(TeacherBatch(**wider), 3, 0, 0), strict=True):
        assert torch.equal(one, other)


def test_anchors_change_with_seed_step_and_text():
    whole = seen()
    alike = dataclasses.replace(whole, tokens=whole.tokens[:1].expand(BATCH, -1).contiguous())
    full = torch.ones_like(whole.attention_mask)
    alike = dataclasses.replace(alike, attention_mask=full, loss_mask=full)
    first = drawn_anchors(alike, 4, 0, 0)[0]
    assert (first == first[0]).all()
    assert not torch.equal(first, drawn_anchors(alike, 4, 0, 1)[0])
    assert not torch.equal(first, drawn_anchors(alike, 4, 1, 0)[0])
    others = dataclasses.replace(whole, attention_mask=full, loss_mask=full)
    assert len({tuple(each) for each in drawn_anchors(others, 4, 0, 0)[0].tolist()}) > 1
    counts = torch.stack([drawn_anchors(others, 4, 0, step)[0] for step in range(300)]).flatten().bincount()
    assert counts[0] == 0
    assert (counts[1:] > 0.8 * 4 * 300 * BATCH / (LENGTH - 2)).all()
    assert len(counts) == LENGTH - 1


def test_dpace_is_how_the_expected_run_changes_with_a_draft():
    """w_k is the derivative of the sum of products of s by log s_k."""
    torch.manual_seed(0)
    chances, counted = torch.rand(3, 4, 5, dtype=torch.float64), torch.ones(3, 4, 5, dtype=torch.bool)
    counted[0, 0, 3:] = False
    logs = (DPACE_FLOOR + (1 - DPACE_FLOOR) * chances).log().requires_grad_()
    (logs.cumsum(-1).exp() * counted).sum().backward()
    torch.testing.assert_close(dpace(chances, counted), logs.grad * counted)


def test_dpace_weighs_by_the_drafters_own_chances():
    """Weigh without a gradient: a draft's weight falls the less, the likelier those before it are."""
    whole, student = seen(), Table(vocabulary=KEPT)
    plan = dataclasses.replace(PLAN, depth_weights="dpace")
    found = Objective(plan, DEPTH)(student, whole, 0, 0)
    anchors = torch.arange(1, LENGTH - 1).expand(BATCH, -1)
    places = anchors[..., None] + torch.arange(1, DEPTH + 1)
    inside, clamped = places < LENGTH, places.clamp(max=LENGTH - 1)
    counted = inside & (whole.loss_mask & whole.attention_mask).gather(1, clamped.flatten(1)).view_as(places)
    tokens = whole.tokens.gather(1, clamped.flatten(1)).view_as(places)
    own = (tokens[..., None] == KEPT).float()
    chances = torch.stack(student(whole, anchors, DEPTH), 2).softmax(-1)
    weights = dpace((chances * own).sum(-1), counted).detach()
    teacher = whole.logits.gather(1, (clamped - 1).flatten(1)[..., None].expand(-1, -1, SIZE)).view(*places.shape, SIZE)
    worth = divergence("fkl", torch.stack(student(whole, anchors, DEPTH), 2), teacher, tokens, vocabulary=KEPT)
    torch.testing.assert_close(found.total, (weights * worth.loss).sum())
    torch.testing.assert_close(found.weight, (weights * worth.counted).sum())


def test_depths_do_not_change_the_scale():
    """Compare losses of a drafter that is as good at every depth, for several numbers of depths."""

    class Alike(Table):
        def forward(self, seen, anchors, depth):
            return [self.table[0, 0].expand(*anchors.shape, -1)] * depth

    whole = seen()
    whole = dataclasses.replace(whole, logits=whole.logits[:1, :1].expand_as(whole.logits))
    losses = [Objective(PLAN, depth)(Alike(), whole, 0, 0) for depth in (1, 2, 3)]
    ratios = [each.total / each.weight for each in losses]
    torch.testing.assert_close(ratios, [ratios[0]] * 3)
