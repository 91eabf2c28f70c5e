"""Acceptance by depth against counting by hand, one place at a time."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from speccompile.plan.training_plan import LossPlan
from speccompile.train.evaluate import DepthCounts, depths
from speccompile.train.evaluate.held_out_loss import HeldOutLoss
from speccompile.train.objective import Objective
from speccompile.train.teacher import Teacher
from tests import zoo
from tests.train.toy_student import DEPTH, KINDS, VOCABULARY, Toy


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    return Teacher(zoo.model("llama"), ())


def random_texts(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return texts side by side, with learnt tokens in runs."""
    generator = torch.Generator().manual_seed(0)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    tokens = torch.randint(VOCABULARY, real.shape, generator=generator) * real
    learnt = torch.rand(real.shape, generator=generator) < 0.8
    return tokens, real, learnt & real


def by_hand(student: Toy, teacher: Teacher, texts: tuple[Tensor, Tensor, Tensor]) -> DepthCounts:
    """Count acceptances one text, one anchor and one depth at a time."""
    counts = {name: [0.0] * DEPTH for name in ("places", "before", "right", "accepted")}
    for tokens, real, learnt in zip(*texts, strict=True):
        length = int(real.sum())
        seen = teacher.forward(*(each[None, :length] for each in (tokens, real, learnt)))
        ids = torch.arange(VOCABULARY) if student.vocabulary is None else student.vocabulary
        for anchor in range(1, length):
            is_right = True
            for depth in range(1, DEPTH + 1):
                if anchor + depth >= length or not learnt[anchor + depth]:
                    break
                drafter = torch.zeros(VOCABULARY)
                said = student.say(seen, torch.tensor([[anchor]]), depth - 1)[0, 0].detach().softmax(-1)
                drafter[ids] = said
                target = seen.logits[0, anchor + depth - 1].softmax(-1)
                counts["places"][depth - 1] += 1
                counts["before"][depth - 1] += is_right
                is_right = is_right and bool(drafter.argmax() == target.argmax())
                counts["right"][depth - 1] += is_right
                counts["accepted"][depth - 1] += float(torch.minimum(drafter, target).sum())
    whole = [tuple(map(int, counts[name])) for name in ("places", "before", "right")]
    return DepthCounts(*whole, tuple(counts["accepted"]))


def same(one: DepthCounts, other: DepthCounts) -> bool:
    exact = (one.places, one.before, one.right) == (other.places, other.before, other.right)
    return exact and one.accepted == pytest.approx(other.accepted, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_counting_by_hand(kind, teacher):
    student = KINDS[kind]()
    texts = random_texts([40, 23, 31])
    found = depths(student, teacher, [texts], DEPTH)
    expected = by_hand(student, teacher, texts)
    assert same(found, expected)
    assert 0 < found.right[-1] < found.right[0] < found.places[0]
    shares = [right / places for right, places in zip(expected.right, expected.places, strict=True)]
    assert found.full == pytest.approx(shares)
    assert found.cond[1] == expected.right[1] / expected.before[1]
    assert found.accepted_at_depth[0] == pytest.approx(expected.accepted[0] / expected.places[0], rel=1e-4)


def loss_by_hand(student: Toy, teacher: Teacher, texts: tuple[Tensor, Tensor, Tensor], decay: float) -> float:
    """Return the mean of KL(p || q), p over the drafter's tokens, weighed by `decay` to the power of the depth."""
    total = weight = 0.0
    ids = torch.arange(VOCABULARY) if student.vocabulary is None else student.vocabulary
    for tokens, real, learnt in zip(*texts, strict=True):
        length = int(real.sum())
        seen = teacher.forward(*(each[None, :length] for each in (tokens, real, learnt)))
        for anchor in range(1, length - 1):
            for depth in range(1, 2 if student.even else DEPTH + 1):
                target = seen.logits[0, min(anchor + depth, length) - 1]
                if anchor + depth >= length or not learnt[anchor + depth] or int(target.argmax()) not in ids:
                    continue
                said = student.say(seen, torch.tensor([[anchor]]), depth - 1)[0, 0].detach()
                apart = kl_div(said.log_softmax(-1), target[ids].softmax(-1), reduction="sum")
                total, weight = total + decay ** (depth - 1) * float(apart), weight + decay ** (depth - 1)
    return total / weight


@pytest.mark.parametrize("kind", KINDS)
def test_the_held_out_loss_is_that_of_summing_by_hand(kind, teacher):
    student, decay = KINDS[kind](), 0.5
    plan = LossPlan("fkl", 0.5, 0.0, "decay", decay, "target", 0.5, anchors=64, drop=None)
    loss = HeldOutLoss(Objective(plan, DEPTH), student, seed=3)
    assert loss.value is None
    parts = [random_texts([40, 23]), random_texts([31])]
    depths(student, teacher, parts, DEPTH, loss.add)
    hand = [loss_by_hand(student, teacher, part, decay) for part in parts]
    assert min(hand) < loss.value < max(hand)
    alone = HeldOutLoss(Objective(plan, DEPTH), student, seed=3)
    depths(student, teacher, parts[:1], DEPTH, alone.add)
    assert alone.value == pytest.approx(hand[0], rel=1e-4)


def test_counts_of_parts_add_up_to_those_of_the_whole(teacher):
    student = KINDS["every place"]()
    whole = random_texts([30, 18, 25, 22])
    parts = [tuple(each[start : start + 2] for each in whole) for start in (0, 2)]
    found = [depths(student, teacher, [part], DEPTH) for part in parts]
    assert same(found[0] + found[1], depths(student, teacher, [whole], DEPTH))
    assert DepthCounts.none(DEPTH) + found[0] == found[0]


def test_nothing_is_counted_where_nothing_is_learnt(teacher):
    tokens, real, learnt = random_texts([12])
    texts = [(tokens, real, torch.zeros_like(learnt)), (tokens[:, :2], real[:, :2], learnt[:, :2])]
    counts = depths(KINDS["blocks"](), teacher, texts, DEPTH)
    assert counts == DepthCounts.none(DEPTH)
    assert counts.full == counts.cond == counts.accepted_at_depth == [None] * DEPTH
    assert counts.expected == 1


def test_what_the_target_itself_drafts_is_always_right(teacher):
    student = Toy(every=True, even=True, towards=1e4)
    counts = depths(student, teacher, [random_texts([25, 14])], DEPTH)
    assert counts.full == [1.0] * DEPTH
    assert counts.expected == DEPTH + 1


def test_the_watcher_sees_every_batch_and_the_student_comes_back_as_it_was(teacher):
    student, seen = KINDS["blocks"]().train(), []
    depths(student, teacher, [random_texts([9]), random_texts([12])], DEPTH, seen.append)
    assert [each.tokens.shape[1] for each in seen] == [9, 12]
    assert student.training


def test_blocks_are_asked_for_a_few_at_a_time(teacher):
    student = KINDS["blocks"]()
    depths(student, teacher, [random_texts([150])], DEPTH)
    assert sum(student.asked) == 148
    assert max(student.asked) <= 64
