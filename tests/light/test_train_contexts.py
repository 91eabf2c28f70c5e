"""Texts of the drafter's own: where they begin and end, that they are samples, and that they can be drawn again."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from speccompile.drafters.model.training import ModelStudent
from speccompile.plan.training_plan import LossPlan
from speccompile.train.on_policy import _Sampled, is_on_policy_step, sample_on_policy
from tests import zoo

PLAN = LossPlan("rkl", 0.5, 0.0, "decay", 0.8, "mixed", 0.3, anchors=3, drop=None)
LENGTH = 24


@pytest.fixture(scope="module", name="student")
def _student(tmp_path_factory):
    folder = zoo.save("llama", tmp_path_factory.mktemp("drafter") / "llama")
    return ModelStudent(folder, zoo.VOCABULARY, 3)


def texts(count=6, seed=0, size=zoo.VOCABULARY):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, size, (count, LENGTH), generator=generator)
    lengths = torch.randint(14, LENGTH + 1, (count, 1), generator=generator)
    prompts = torch.randint(2, 10, (count, 1), generator=generator)
    real = torch.arange(LENGTH) < lengths
    return tokens, real, real & (torch.arange(LENGTH) >= prompts)


def test_prompts_stay_and_no_text_grows(student):
    tokens, real, learnt = texts()
    own, own_real, own_learnt = sample_on_policy(student, tokens, real, learnt, (), 0, 0)
    assert torch.equal(own_real, real)
    assert torch.equal(own_learnt, learnt)
    assert torch.equal(own[real & ~learnt], tokens[real & ~learnt])
    assert (own[learnt] != tokens[learnt]).float().mean() > 0.9
    assert (own[~real] == 0).all()


def test_what_stands_between_answers_is_the_drafters_as_well(student):
    """Leave the texts between answers out of what is continued: they reply to answers that another model gave."""
    tokens, real, learnt = texts()
    gaps = learnt.clone()
    gaps[:, 12] = False
    for found, expected in zip(
        sample_on_policy(student, tokens, real, gaps, (), 0, 0),
        sample_on_policy(student, tokens, real, learnt, (), 0, 0),
        strict=True,
    ):  # fmt: skip
        assert torch.equal(found, expected)


def test_a_text_without_a_prompt_begins_with_its_first_token(student):
    tokens, real, _ = texts()
    own, _, own_learnt = sample_on_policy(student, tokens, real, real, (), 0, 0)
    assert torch.equal(own[:, 0], tokens[:, 0])
    assert torch.equal(own_learnt, real & (torch.arange(LENGTH) > 0))


def test_a_text_of_prompt_alone_stays(student):
    tokens, real, learnt = texts()
    learnt[2] = False
    own, own_real, own_learnt = sample_on_policy(student, tokens, real, learnt, (), 0, 0)
    assert torch.equal(own[2][real[2]], tokens[2][real[2]])
    assert torch.equal(own_real[2], real[2])
    assert not own_learnt[2].any()
    nothing = sample_on_policy(student, tokens, real, torch.zeros_like(real), (), 0, 0)
    assert torch.equal(nothing[0], tokens)
    assert not nothing[2].any()


def test_it_is_a_function_of_seed_step_and_prompt(student):
    tokens, real, learnt = texts()
    whole = sample_on_policy(student, tokens, real, learnt, (), 4, 9)
    torch.manual_seed(123)
    parts = [
        sample_on_policy(student, tokens[rows], real[rows], learnt[rows], (), 4, 9) for rows in ([0, 1, 2], [3], [4, 5])
    ]
    for at in range(3):
        assert torch.equal(torch.cat([part[at] for part in parts]), whole[at])
    for seed, step in ((4, 10), (5, 9)):
        assert (sample_on_policy(student, tokens, real, learnt, (), seed, step)[0] != whole[0])[
            learnt
        ].float().mean() > 0.9


@torch.no_grad()
def test_they_are_samples_of_what_the_drafter_says(student):
    """Compare the mean of -log q over its samples with its mean entropy; it differs where the prompt was read at other
    positions."""
    tokens, real, learnt = texts(96, seed=3)
    own, own_real, own_learnt = sample_on_policy(student, tokens, real, learnt, (), 0, 0)
    said = student.network(own, attention_mask=own_real.long()).logits[:, :-1].log_softmax(-1)
    chances, written = said.exp(), own_learnt[:, 1:]
    entropy = -(chances * said).sum(-1)
    surprise = -said.gather(-1, own[:, 1:, None])[..., 0]
    gap = (surprise - entropy)[written]
    bound = 4 * gap.std() / len(gap) ** 0.5
    assert abs(gap.mean()) < bound
    uniform = np.log(zoo.VOCABULARY)
    assert entropy[written].mean() + 3 * bound < uniform


def test_noise_makes_the_largest_a_sample():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 9.0])
    count = 20000
    sampled = _Sampled([np.random.default_rng((1, each)) for each in range(count)], size=4)
    found = sampled(torch.zeros(count, 1), logits.expand(count, -1)).argmax(-1).bincount(minlength=5)
    expected = logits[:4].softmax(-1) * count
    assert found[4] == 0
    assert ((found[:4] - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom: p = 0.001


def test_texts_end_where_the_drafter_ends_them(student):
    tokens, real, learnt = texts(12)
    ends = tuple(range(0, zoo.VOCABULARY, 8))
    own, own_real, own_learnt = sample_on_policy(student, tokens, real, learnt, ends, 0, 0)
    assert torch.equal(own_learnt, own_real & ~(real & ~learnt))
    is_end = torch.isin(own, torch.tensor(ends)) & own_learnt
    assert is_end.any()
    assert (is_end.sum(1) <= 1).all()
    for row in range(12):
        place = int(own_real[row].sum()) - 1
        assert own_real[row, : place + 1].all()
        assert is_end[row, place] or place + 1 == real[row].sum()
    unended = sample_on_policy(student, tokens, real, learnt, (), 0, 0)[0]
    assert torch.equal(own[own_learnt], unended[own_learnt])


def test_the_targets_vocabulary_may_be_smaller_or_larger(student, tmp_path):
    small, tokens_of = zoo.VOCABULARY // 2, texts(8)
    narrow = ModelStudent(student.folder, small, 1)
    own, _, own_learnt = sample_on_policy(narrow, *texts(8, size=small), (), 0, 0)
    assert own[own_learnt].max() < small
    tokens, real, learnt = tokens_of
    beyond = tokens.clone()
    beyond[:, 1] = zoo.VOCABULARY + 5
    own, _, own_learnt = sample_on_policy(
        ModelStudent(student.folder, zoo.VOCABULARY + 9, 1), beyond, real, learnt, (), 0, 0
    )
    assert (own[:, 1] == zoo.VOCABULARY + 5).all()
    assert own[own_learnt].max() < zoo.VOCABULARY


def test_the_student_is_left_as_it_was(student):
    """Ignore the generation config in its folder."""
    batch = texts()
    expected = sample_on_policy(student, *batch, (), 0, 0)
    network = student.network
    before, mode = network.generation_config, network.training
    own = GenerationConfig(repetition_penalty=9.0, max_new_tokens=2, do_sample=True, temperature=0.1, eos_token_id=7)
    try:
        network.generation_config = own
        network.train()
        found = sample_on_policy(student, *batch, (), 0, 0)
        assert network.training
        assert network.generation_config is own
    finally:
        network.generation_config = before
        network.train(mode)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_which_batches_are_the_drafters():
    drawn = [is_on_policy_step(PLAN, 3, step) for step in range(2000)]
    assert drawn == [is_on_policy_step(PLAN, 3, step) for step in range(2000)]
    assert abs(sum(drawn) / 2000 - PLAN.share) < 0.04
    assert drawn != [is_on_policy_step(PLAN, 4, step) for step in range(2000)]
    for contexts in ("target", "drafter"):
        own = {is_on_policy_step(dataclasses.replace(PLAN, contexts=contexts), 3, step) for step in range(50)}
        assert own == {contexts == "drafter"}
