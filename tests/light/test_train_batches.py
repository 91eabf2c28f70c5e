"""Batches: a function of seed, step and size; an epoch has every text once; parts are the whole."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.errors import UsageError
from speccompile.train.data.corpus import Dataset
from speccompile.train.data.order import BatchOrder
from speccompile.train.data.prepare import prepare
from tests.light.train_data_example import plan, tokenizer, write_lines


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": "x = 1\n" * (number % 11 + 1), "answer": f"y = {number}\n"} for number in range(60)]
    file = write_lines(folder / "prompts.jsonl", rows)
    return prepare(plan([file], "prompts"), tokenizer(), folder / "work")[0]


@given(
    count=st.integers(1, 60), size=st.integers(1, 70), seed=st.integers(0, 3), epochs=st.integers(1, 4), data=st.data()
)
@settings(max_examples=60)
def test_every_epoch_has_every_text_once(count, size, seed, epochs, data):
    lengths = np.array(data.draw(st.lists(st.integers(3, 99), min_size=count, max_size=count)))
    order, steps = BatchOrder(lengths), -(-count * epochs // size)
    texts = np.concatenate([order.samples(seed, step, size) for step in range(steps)])
    for epoch in range(epochs):
        assert sorted(texts[epoch * count : (epoch + 1) * count]) == list(range(count))
    step = data.draw(st.integers(0, steps - 1))
    assert (BatchOrder(lengths).samples(seed, step, size) == texts[step * size : (step + 1) * size]).all()


def test_epochs_and_seeds_differ():
    order = BatchOrder(np.arange(3, 203))
    draws = [[tuple(order.samples(seed, step, 8)) for step in range(25)] for seed in (0, 1)]
    assert draws[0] != draws[1]
    assert draws[0] != [tuple(order.samples(0, step, 8)) for step in range(25, 50)]


def test_texts_of_like_lengths_are_together():
    lengths = np.random.default_rng(0).integers(3, 1000, 4000)
    order = BatchOrder(lengths)
    rows = [lengths[order.samples(0, step, 16)] for step in range(250)]
    padded = sum(row.max() * 16 for row in rows) / lengths.sum()
    assert padded < 1.1  # drawn at random it is 1.9
    assert np.corrcoef(range(250), [row.mean() for row in rows])[0, 1] < 0.2  # long and short ones come mixed


def test_parts_are_the_whole(corpus):
    for step, size, parts in ((0, 8, 2), (5, 7, 3), (11, 4, 4)):
        whole = corpus.batch(3, step, size)
        cut = [corpus.batch(3, step, size, part, parts) for part in range(parts)]
        for name in ("tokens", "attention_mask", "loss_mask"):
            assert torch.equal(torch.cat([getattr(each, name) for each in cut]), getattr(whole, name))
        assert sum((each.samples for each in cut), ()) == whole.samples
        assert max(len(each.samples) for each in cut) - min(len(each.samples) for each in cut) <= 1


def test_batch_holds_its_texts(corpus):
    batch = corpus.batch(0, 2, 8)
    assert (batch.tokens.dtype, batch.attention_mask.dtype, batch.loss_mask.dtype) == (
        torch.int64,
        torch.bool,
        torch.bool,
    )
    assert batch.attention_mask.sum(1).max() == batch.tokens.shape[1]
    for row, number in enumerate(batch.samples):
        text, length = corpus.sample(number), int(batch.attention_mask[row].sum())
        assert batch.tokens[row, :length].tolist() == text.tokens.tolist()
        assert batch.loss_mask[row, :length].tolist() == text.learnt.tolist()
        assert not batch.attention_mask[row, length:].any()
        assert not batch.loss_mask[row, length:].any()
        assert not batch.tokens[row, length:].any()


def test_batches_larger_than_the_corpus(corpus):
    found = Counter(corpus.batch(0, 0, 3 * len(corpus)).samples)
    assert set(found.values()) == {3}


def test_a_part_without_a_text_is_refused(corpus):
    with pytest.raises(UsageError, match="received batches of 2 texts in 3 parts"):
        corpus.batch(0, 0, 2, 0, 3)
