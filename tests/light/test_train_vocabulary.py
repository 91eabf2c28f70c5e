"""A vocabulary by counts, and the prompts that are left for the next drafter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.drafters.initialization import vocabulary_maps
from speccompile.drafters.model.training import ModelStudent
from speccompile.drafters.trainable import TrainableDrafter
from speccompile.errors import RecipeError
from speccompile.train.col_bt import solved_by_drafter, unsolved_texts
from speccompile.train.data.corpus import Dataset
from speccompile.train.vocabulary import count_learnt, coverage, select_tokens
from tests import zoo


def test_learnt_tokens_are_counted():
    tokens = [np.array([1, 5, 5, 2], np.int32), np.array([5, 0, 9], np.int32)]
    learnt = [np.array([False, True, True, True]), np.array([True, False, True])]
    counts = count_learnt(zip(tokens, learnt, strict=True), 12)
    assert counts.tolist() == [0, 0, 1, 0, 0, 3, 0, 0, 0, 1, 0, 0]
    assert coverage(counts, torch.tensor([5, 7])) == pytest.approx(3 / 5)


@settings(max_examples=80)
@given(st.lists(st.integers(0, 5), min_size=4, max_size=40), st.data())
def test_the_most_frequent_tokens_are_kept(numbers, data):
    counts = torch.tensor(numbers)
    special = data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=3))
    occur = {each for each in special if counts[each] > 0}
    size = data.draw(st.integers(max(1, len(occur)), len(numbers)))
    kept = select_tokens(counts, size, special)
    assert kept.dtype == torch.int64
    assert kept.tolist() == sorted(set(kept.tolist()))
    ranked = sorted(set(range(len(numbers))) - occur, key=lambda token: (-numbers[token], token))
    assert set(kept.tolist()) == occur | set(ranked[: size - len(occur)])


def test_too_few_tokens_are_filled_with_the_lowest_ids():
    counts = torch.zeros(10, dtype=torch.int64)
    counts[[8, 6]] = torch.tensor([4, 1])
    assert select_tokens(counts, 5).tolist() == [0, 1, 2, 6, 8]
    assert select_tokens(counts, 1, special=[6]).tolist() == [6]
    assert select_tokens(counts, 1, special=[7]).tolist() == [8]


@pytest.mark.parametrize(("size", "special", "expected"), [(11, (), "from 1 to 10"), (0, (), "from 1 to 10"),
                                                           (1, (3, 4), "from 2, the special ones")])  # fmt: skip
def test_a_size_without_a_choice_is_refused(size, special, expected):
    with pytest.raises(RecipeError, match=r"vocabulary: received \d+ tokens, expected from") as caught:
        select_tokens(torch.ones(10, dtype=torch.int64), size, special)
    assert expected.split(",")[0].replace("from ", "").split(" to ")[0] in str(caught.value)
    assert caught.value.hint


def test_maps_are_offsets_and_a_mask():
    kept = torch.tensor([1, 4, 5, 9])
    found = vocabulary_maps(kept, 12)
    assert found["d2t"].tolist() == [1, 3, 3, 6]
    assert (found["d2t"].dtype, found["t2d"].dtype) == (torch.int64, torch.bool)
    assert found["t2d"].nonzero()[:, 0].tolist() == kept.tolist()
    assert len(found["t2d"]) == 12


class Successor(TrainableDrafter):
    """Says behind each token the next number."""

    even = True

    def __init__(self, vocabulary=None):
        super().__init__()
        self.vocabulary, self.weight = vocabulary, torch.nn.Parameter(torch.ones(1))

    def forward(self, seen, anchors, depth):
        best = seen.tokens.gather(1, anchors) + 1
        wanted = best if self.vocabulary is None else torch.searchsorted(self.vocabulary, best)
        return [torch.nn.functional.one_hot(wanted, 20 if self.vocabulary is None else len(self.vocabulary)).float()]

    def save(self, folder, dtype):
        raise NotImplementedError


TEXTS = torch.tensor([[9, 1, 2, 3, 4, 5], [9, 1, 2, 3, 7, 8], [1, 9, 9, 9, 9, 9], [9, 1, 2, 3, 0, 0]])
REAL = torch.tensor([[True] * 6, [True] * 6, [True] * 6, [True] * 4 + [False] * 2])
LEARNT = torch.tensor([[False] * 2 + [True] * 4] * 4) & REAL


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(1.0, [True, False, False, True]), (0.75, [True, True, False, True]), (0.8, [True, False, False, True])],
)
@pytest.mark.parametrize("vocabulary", [None, torch.arange(1, 12)])
def test_prompts_are_marked_whose_answer_the_drafter_gives(threshold, expected, vocabulary):
    batches = [(TEXTS[rows], REAL[rows], LEARNT[rows]) for rows in (slice(2), slice(2, 4))]
    marked = list(solved_by_drafter(Successor(vocabulary), batches, threshold))
    assert [len(each) for each in marked] == [2, 2]
    assert torch.cat(marked).tolist() == expected


def test_a_text_without_an_answer_is_not_reproduced():
    (marked,) = solved_by_drafter(Successor(), [(TEXTS, REAL, torch.zeros_like(LEARNT))])
    assert not marked.any()


class Listed:
    """A table of the texts above, some of them several times."""

    def __init__(self, rows):
        self.rows, self.lengths = rows, np.array([int(REAL[row].sum()) for row in rows])
        self.documents = np.arange(len(rows), dtype=np.uint64)

    def tokens(self, number):
        return TEXTS[self.rows[number], : self.lengths[number]].numpy().astype(np.int32)

    def learnt(self, number):
        return LEARNT[self.rows[number], : self.lengths[number]].numpy()


def test_the_next_drafter_learns_from_the_rest():
    """Train on a corpus of its own: to go on with another one is another training."""
    rows = [0, 1, 2, 3] * 12
    corpus = Dataset(Listed(rows), np.arange(3, 48), "key")
    left = unsolved_texts(corpus, Successor(), "first")
    assert left.rows.tolist() == [row for row in range(3, 48) if rows[row] in (1, 2)]
    assert (left.texts, left.key != "key") == (corpus.texts, True)
    assert left.key == unsolved_texts(corpus, Successor(), "first").key
    assert left.key != unsolved_texts(corpus, Successor(), "first", threshold=0.75).key


def test_it_is_an_error_where_nothing_is_left():
    corpus = Dataset(Listed([0, 3]), np.arange(2), "key")
    with pytest.raises(RecipeError, match=r"loss\.drop: models/first gives the target's answer to all 2 pro") as caught:
        unsolved_texts(corpus, Successor(), "models/first")
    assert caught.value.hint


def test_marked_are_those_that_transformers_generates(tmp_path):
    """Teacher-forced agreement over a whole answer is what greedy generation gives."""
    student = ModelStudent(zoo.save("llama", tmp_path / "first"), zoo.VOCABULARY, 1)
    prompts = torch.randint(3, zoo.VOCABULARY, (6, 7), generator=torch.Generator().manual_seed(1))
    texts = student.network.generate(prompts, do_sample=False, max_new_tokens=9, eos_token_id=None, pad_token_id=0)
    assert texts.shape == (6, 16)
    for row, place in ((1, 7), (3, 12), (4, 15)):
        texts[row, place] = (texts[row, place] + 1) % zoo.VOCABULARY
    learnt = (torch.arange(16) >= 7).expand(6, -1)
    student.train()
    (marked,) = solved_by_drafter(student, [(texts, torch.ones_like(learnt), learnt)])
    assert marked.tolist() == [True, False, True, False, False, True]
    assert student.training
