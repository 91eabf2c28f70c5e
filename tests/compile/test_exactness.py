"""A bundle generates what transformers' own greedy `generate` does, whatever is drafted and however it is fed."""

from functools import reduce

import numpy as np
import pytest

from speccompile.contract import BATCH
from speccompile.errors import PromptError
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import NEW_TOKENS, RECIPES, each
from tests.light.forced_lengths import forced_lengths

WITH_ENDS = ("model_4", "lookup_3")
WITHOUT_ENDS = [name for name in RECIPES if name not in WITH_ENDS]
BATCHED = ("model_1", "model_4", "lookup_3", "lookup_5")
LEARNED_POSITIONS = ("model_1", "lookup_1")
LOOKUPS = {"lookup_1": (16, 1), "lookup_3": (4, 3), "lookup_5": (1, 5)}


def groups(items, size):
    return [items[start : start + size] for start in range(0, len(items), size)]


def random_prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(3, zoo.VOCABULARY, length).tolist()


def generate_all(case, **options):
    """Return one generation for every prompt of the case, as many at once as the bundle takes."""
    batches = groups(case.prompts(), case.bundle.manifest.batch_size)
    return [one for batch in batches for one in case.bundle.generate_batch(batch, **options)]


@pytest.mark.parametrize("autoregressive", [False, True])
@pytest.mark.parametrize("name", each())
def test_tokens_are_those_of_transformers(built, name, autoregressive):
    case = built(name)
    generations = generate_all(case, max_new_tokens=NEW_TOKENS, autoregressive=autoregressive)
    assert [one.token_ids for one in generations] == [case.reference(prompt) for prompt in case.prompts()]
    for one in generations:
        assert one.finish_reason == ("stop" if one.token_ids[-1] in case.bundle.manifest.eos_token_ids else "length")
        assert one.mode == ("autoregressive" if autoregressive or name == "none" else "speculative")


@pytest.mark.parametrize("name", WITH_ENDS)
def test_end_tokens_end_some_of_them_early(built, name):
    generations = generate_all(built(name), max_new_tokens=NEW_TOKENS)
    assert len({len(one.token_ids) for one in generations}) >= 3
    assert {one.finish_reason for one in generations} == {"length", "stop"}


@pytest.mark.parametrize("name", each(["model_1", "model_4", "lookup_1", "lookup_3", "lookup_5"]))
def test_rows_accept_different_lengths(built, name):
    generations = generate_all(built(name), max_new_tokens=NEW_TOKENS, adaptive=False)
    assert len({tuple(one.path_lengths) for one in generations}) > 2
    lengths = reduce(set.union, (set(one.path_lengths) for one in generations))
    assert lengths >= {1, built(name).bundle.manifest.tokens + 1}


def test_a_drafter_that_is_the_target_is_always_right(built):
    case = built("model_8")
    for prompt in case.prompts():
        generation = case.bundle.generate(prompt, max_new_tokens=1 + 3 * 9, adaptive=False)
        assert (generation.rounds, generation.mean_accepted) == (3, 9.0)
        assert generation.token_ids == case.reference(prompt, 1 + 3 * 9)


@pytest.mark.parametrize("wanted", [[9, 1, 9, 5, *[1] * 4, 9], [1, 1, 9, *[1] * 40, 9, 9]], ids=["soon", "late"])
def test_a_drafter_that_fell_behind_is_as_right_as_before(built, monkeypatch, wanted):
    case = built("model_8")
    monkeypatch.setattr(case.bundle._loop.drafting, "policy", forced_lengths(case.bundle, wanted))
    for prompt in (case.prompts()[0], case.prompts()[6]):
        new_tokens = min(80, case.bundle.manifest.max_length - len(prompt))
        generation = case.bundle.generate(prompt, max_new_tokens=new_tokens)
        assert generation.token_ids == case.reference(prompt, new_tokens)
        assert generation.path_lengths == [count + 1 for count in generation.draft_lengths]
        assert set(generation.draft_lengths) >= {0, 8}


@pytest.mark.parametrize("name", BATCHED)
def test_fewer_prompts_than_rows(built, name):
    case = built(name)
    for prompts in ([case.prompts()[2]], [case.prompts()[6], case.prompts()[0]]):
        generations = case.bundle.generate_batch(prompts, max_new_tokens=NEW_TOKENS)
        assert [one.token_ids for one in generations] == [case.reference(prompt) for prompt in prompts]


@pytest.mark.parametrize("name", each())
def test_one_new_token_needs_no_round(built, name):
    case = built(name)
    for prompt in case.prompts()[:2]:
        generation = case.bundle.generate(prompt, max_new_tokens=1)
        assert (generation.rounds, generation.mean_accepted) == (0, None)
        assert generation.token_ids == case.reference(prompt)[:1]


@pytest.mark.parametrize("name", each(WITHOUT_ENDS))
def test_the_buffers_can_be_filled_to_the_last_row(built, name):
    case = built(name)
    capacity = case.bundle.manifest.max_length
    assert name not in LEARNED_POSITIONS or case.target.config.max_position_embeddings == capacity
    prompt = random_prompt(capacity - 9)
    expected = case.reference(prompt, 9)
    for asked, reason in ((9, "length"), (10, "capacity"), (1000, "capacity")):
        generation = case.bundle.generate(prompt, max_new_tokens=asked)
        assert (generation.token_ids, generation.finish_reason) == (expected, reason)


@pytest.mark.parametrize("name", ["model_1", "lookup_5"])
def test_a_full_row_leaves_the_others_alone(built, name):
    case = built(name)
    capacity = case.bundle.manifest.max_length
    prompts = [random_prompt(capacity - 3), case.prompts()[0], random_prompt(capacity)]
    full, other, without_room = case.bundle.generate_batch(prompts, max_new_tokens=NEW_TOKENS)
    assert (full.token_ids, full.finish_reason) == (case.reference(prompts[0], 3), "capacity")
    assert other.token_ids == case.reference(prompts[1])
    assert (without_room.token_ids, without_room.finish_reason, without_room.rounds) == ([], "capacity", 0)


@pytest.mark.parametrize("name", each())
def test_a_prompt_past_the_capacity_is_refused_with_both_numbers(built, name):
    bundle = built(name).bundle
    capacity = bundle.manifest.max_length
    assert bundle.generate(random_prompt(capacity)).token_ids == []
    message = f"the prompt has {capacity + 1} tokens, more than this bundle's capacity of {capacity}"
    with pytest.raises(PromptError, match=message):
        bundle.generate(random_prompt(capacity + 1))


@pytest.mark.parametrize("name", each())
def test_nothing_of_a_generation_reaches_the_next(built, name):
    """Overwrite every cache and state between two generations: no token changes."""
    case, prompts = built(name), [[5], [9, 8]]
    rows = case.bundle.manifest.batch_size
    options = {"max_new_tokens": NEW_TOKENS, "adaptive": False}
    fresh = Bundle.open(case.path, threads=1).generate_batch(prompts[:rows], **options)
    generate_all(case, **options)
    for graph in case.bundle.manifest.graphs:
        for tensor in graph.inputs:
            if tensor.role == "state":
                case.bundle.engine.host_view(tensor.buffer, tensor.concrete_shape({BATCH: rows}))[:] = (
                    7 if tensor.dtype == "int64" else 1e3
                )
    again = case.bundle.generate_batch(prompts[:rows], **options)
    assert [(one.token_ids, one.path_lengths) for one in again] == [(one.token_ids, one.path_lengths) for one in fresh]


def looked_up(text: list[int], n_tokens: int, ngram: int) -> list[int]:
    """Return the drafts after `text`: the longest match of its end, the latest of several, copied round and round."""
    for size in range(ngram, 0, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                return [text[end + i % (len(text) - end)] for i in range(n_tokens)]
    return []


@pytest.mark.parametrize("name", each(LOOKUPS))
@pytest.mark.parametrize("letters", [2, 5, 200])
def test_lookups_are_those_of_a_plain_search(built, name, letters):
    """Run the draft graph alone, round after round, over random texts of few letters (many matches) and many (few)."""
    case, (n_tokens, ngram) = built(name), LOOKUPS[name]
    engine, batch, random = case.bundle.engine, case.bundle.manifest.batch_size, np.random.default_rng(letters)
    draft = engine.bind("draft", {"window": n_tokens + 1})
    path, window = (
        engine.host_view(*of) for of in (("path", (batch, n_tokens + 2)), ("window", (batch, n_tokens + 1)))
    )
    n_path, length, n_total = (engine.host_view(name, (batch,)) for name in ("n_path", "length", "n_total"))
    texts = [[] for _ in range(batch)]
    length[:] = 0
    found = 0
    while max(map(len, texts)) < case.bundle.manifest.max_length - n_tokens - 2:
        path[:] = random.integers(0, letters, path.shape)
        n_path[:] = random.integers(0 if texts[0] else 1, n_tokens + 2, batch)
        draft()
        for row, text in enumerate(texts):
            text += path[row, : n_path[row]].tolist()
            expected = looked_up([*text, int(path[row, n_path[row]])], n_tokens, ngram)
            assert n_total[row] == 1 + len(expected)
            assert window[row, : n_total[row]].tolist() == [path[row, n_path[row]], *expected]
            found += bool(expected)
        length += n_path
    assert found
