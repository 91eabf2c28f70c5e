"""Simulated rounds against the runtime's own rows and against drafting one round after the other; where they differ."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.compiler.prove.tolerance import TOLERANCE
from speccompile.runtime.generation import SequenceState
from speccompile.train.evaluate import Answer, SimulatedDecoding, answer, differences, simulate_rounds
from speccompile.train.evaluate.rounds import split_into_rounds, texts_of
from speccompile.train.teacher import Teacher
from tests import zoo
from tests.train.toy_student import DEPTH, KINDS, VOCABULARY, Toy, continued


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    return Teacher(zoo.model("llama"), ())


@given(
    st.lists(st.integers(0, 4), min_size=40, max_size=40), st.integers(0, 40), st.integers(1, 40), st.integers(0, 40)
)
@settings(max_examples=300)
def test_rounds_are_counted_as_the_runtime_counts_them(accepted, room, max_new_tokens, end):
    """Count by the runtime's own row, the drafts behind the text's end included."""
    eos, prompt = 1000, [7, 7]
    text = [eos if place == end else place for place in range(60)]
    row = SequenceState(prompt, max_new_tokens, len(prompt) + room, (eos,), None)
    if row.is_active:
        row.append_tokens(text[:1], 0)
    place = 0
    while row.is_active:
        given = accepted[place] + 1
        row.append_tokens(text[place + 1 : place + 1 + given], 4)
        place += given
    taken = split_into_rounds(accepted, len(row.token_ids))
    assert len(taken) == max(len(row.path_lengths) - 1, 0)
    assert sum(taken) == max(len(row.token_ids) - 1, 0)
    assert list(taken[:-1]) == row.path_lengths[1:-1]


def test_answers_are_greedy_whatever_the_model_would_rather_do():
    model = zoo.model("llama")
    model.generation_config.update(do_sample=True, temperature=3.0, repetition_penalty=5.0, eos_token_id=[3, 4])
    prompts = [[5, 9, 2], [8], [1, 2, 3, 4, 5, 6]]
    free = [continued(model, prompt, 12, ()) for prompt in prompts]
    end = free[0][4]
    found = answer(model, prompts, 12, (end,), 15)
    assert [each.prompt for each in found] == list(map(tuple, prompts))
    rooms = (12, 12, 9)
    assert [list(each.new) for each in found] == [
        continued(model, prompt, room, (end,)) for prompt, room in zip(prompts, rooms, strict=True)
    ]
    assert len(found[0].new) < 12
    assert model.generation_config.repetition_penalty == 5.0
    assert answer(model, [[1, 2]], 5, (), 2) == [Answer((1, 2), ())]


@pytest.mark.parametrize("kind", KINDS)
def test_simulated_rounds_are_those_of_drafting_one_round_after_the_other(kind, teacher):
    student = KINDS[kind]()
    prompts = [torch.randint(VOCABULARY, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (3, 17, 9)]
    answers = [Answer(tuple(prompt), tuple(continued(teacher.model, prompt, 30, ()))) for prompt in prompts]
    answers += [Answer((4, 5), (6,)), Answer((4, 5), ())]
    found = simulate_rounds(student, teacher, answers, DEPTH)
    assert found.tokens_per_round == tuple(tuple(drafting(student, teacher, each)) for each in answers)
    assert found.tokens_per_round[3:] == ((), ())
    assert found.new_tokens == 3 * 29
    assert found.mean_accepted == 87 / found.rounds
    assert 3 * 8 < found.rounds < 87  # neither are all drafts right, nor none
    assert found.shape == "chain of 3"


def drafting(student: Toy, teacher: Teacher, one: Answer) -> list[int]:
    """Return tokens of each round, as a loop has them: drafts follow the known text, which says how many are right."""
    given, known = [], len(one.prompt) + 1
    text = one.prompt + one.new
    while known < len(text):
        tokens = torch.tensor([text])  # the toy reads nothing behind the drafts before
        seen = teacher.forward(tokens, torch.ones_like(tokens).bool(), torch.ones_like(tokens).bool())
        right = 0
        for step in range(DEPTH):
            said = int(student.say(seen, torch.tensor([[known - 1]]), step)[0, 0].argmax())
            said = said if student.vocabulary is None else int(student.vocabulary[said])
            if known + step >= len(text) or said != text[known + step]:
                break
            right += 1
        given.append(min(right + 1, len(text) - known))
        known += given[-1]
    return given


def test_no_round_no_mean(teacher):
    found = simulate_rounds(KINDS["even"](), teacher, [Answer((4, 5), (6,))], DEPTH)
    assert (found.rounds, found.new_tokens, found.mean_accepted) == (0, 0, None)


def test_a_difference_is_explained_by_its_margin(teacher):
    student, prompt = KINDS["every place"](), [3, 1, 4, 1, 5]
    answers = [Answer(tuple(prompt), tuple(continued(teacher.model, prompt, 20, ())))]
    simulated = simulate_rounds(student, teacher, answers, DEPTH)
    assert differences(student, teacher, simulated, simulated, DEPTH) == ()
    number = next(index for index, given in enumerate(simulated.tokens_per_round[0]) if given > 1)
    given = (*simulated.tokens_per_round[0][:number], 1, *simulated.tokens_per_round[0][number:])
    (found,) = differences(student, teacher, simulated, SimulatedDecoding("", tuple(answers), (given,)), DEPTH)
    before = sum(simulated.tokens_per_round[0][:number])
    assert (found.prompt, found.round, found.index, found.who) == (0, number, before + 1, "drafter")
    seen = teacher.forward(*texts_of(answers))
    said = student.say(seen, torch.tensor([[len(prompt) + before]]), 0)[0, 0]
    first, second = said.topk(2).values.tolist()
    assert found.margin == pytest.approx(first - second)  # the text's token is its best: beside it stands the second
    assert not found.is_near_tie


def test_texts_that_part_are_the_targets_difference(teacher):
    student, prompt = KINDS["every place"](), [3, 1, 4, 1, 5]
    new = continued(teacher.model, prompt, 12, ())
    other = [*new[:4], (new[4] + 1) % VOCABULARY, *new[5:]]
    simulated, ran = (
        SimulatedDecoding("", (Answer(tuple(prompt), tuple(text)),), ((1,) * 11,)) for text in (new, other)
    )  # rounds of one token each, on both sides
    (found,) = differences(student, teacher, simulated, ran, DEPTH)
    logits = teacher.forward(*texts_of(simulated.answers)).logits[0, len(prompt) + 3]
    assert (found.who, found.index, found.round) == ("target", 4, 3)  # three rounds behind the first token
    assert found.margin == pytest.approx(float(logits[new[4]] - logits[other[4]]))
    assert found.noise == pytest.approx(TOLERANCE["float32"] * float(logits.abs().max().clamp(min=1)))
    assert found.to_json()["near_tie"] is found.is_near_tie is False


def test_a_target_in_fewer_bits_explains_more():
    """Explain a prompt of one token, whose text ends elsewhere, by a simulated coarse target."""
    model = zoo.model("llama").to(torch.bfloat16)
    student, coarse = KINDS["even"](), Teacher(model, ())
    one, other = (SimulatedDecoding("", (Answer((3,), new),), ((1, 1),)) for new in ((5, 6, 7), (5, 6, 8)))
    (found,) = differences(student, coarse, one, other, DEPTH)
    largest = float(coarse.forward(*texts_of(one.answers)).logits[0, 2].abs().max())
    assert found.noise == pytest.approx(TOLERANCE["bfloat16"] * max(largest, 1.0))


def test_a_text_that_ends_early_is_no_near_tie(teacher):
    texts = {(5, 6, 7, 8): (1, 2), (5, 6, 7): (1, 1)}  # the end cuts the last round
    one, other = (SimulatedDecoding("", (Answer((3,), new),), (given,)) for new, given in texts.items())
    (found,) = differences(KINDS["even"](), teacher, one, other, DEPTH)
    assert (found.index, found.round, found.who, found.margin) == (3, 2, "target", float("inf"))


def test_a_text_whose_token_the_drafter_has_not_parts_by_its_best_two(teacher):
    student = KINDS["a vocabulary of its own"]()
    one, other = (SimulatedDecoding("", (Answer((3,), (5, 7, 9)),), given) for given in (((1, 1),), ((2,),)))
    (found,) = differences(student, teacher, one, other, DEPTH)
    said = student.say(teacher.forward(*texts_of(one.answers)), torch.tensor([[1]]), 0)[0, 0]
    first, second = said.topk(2).values.tolist()
    assert (found.index, found.who, found.margin) == (1, "drafter", pytest.approx(first - second))
