"""Prefixes of a bundle: the longest one is used without being asked, and changes no token."""

from pathlib import Path
from random import Random

import pytest

from speccompile.runtime.session_key import SessionKey
from speccompile.runtime.sessions import Sessions
from speccompile.runtime.shipped_prefixes import SUFFIX, ShippedPrefixes
from tests.light.fake_bundle import toy_bundle
from tests.light.test_rows import KINDS

SYSTEM = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 0]
TEXTS = {"short": SYSTEM, "long": [*SYSTEM, *range(20)], "other": [9] * 15}


def shipping(folder: Path, *, key="a", texts=TEXTS, cuts=True, **make):
    """Return a toy bundle with prefixes, which an earlier one with key `a` has written."""
    writer, reader = toy_bundle(**make), toy_bundle(**make)
    for bundle, its in ((writer, "a"), (reader, key)):
        bundle._sessions = Sessions(bundle._loop, bundle.manifest, SessionKey({"target weights": its}, "d"))
    files = []
    for name, text in texts.items():
        files.append(folder / f"{name}{SUFFIX}")
        writer.generate(text, max_new_tokens=1)
        writer.save_session(files[-1])
    serves = reader._loop.serves if cuts else lambda length, written, part: part == length
    reader._prefixes = ShippedPrefixes(reader._sessions, serves, files)
    return reader


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranges", [False, True])
def test_a_prefix_changes_no_token(kind, ranges, tmp_path):
    dice, cached = Random(kind), 0
    make = {**KINDS[kind], "batch_size": dice.choice([1, 2]), "ranges": ranges}
    bundle = shipping(tmp_path, cuts="states" not in kind, **make)
    for seed in range(8):
        text = dice.choice(list(TEXTS.values()))
        prompt = text[: dice.choice([len(text), dice.randrange(1, len(text))])] + [dice.randrange(5) for _ in range(3)]
        options = {"max_new_tokens": 20, "autoregressive": dice.random() < 0.3}
        options |= {"temperature": 1.0, "seed": seed} if "sampling" in make else {}
        expected, found = toy_bundle(**make).generate(prompt, **options), bundle.generate(prompt, **options)
        assert (found.token_ids, found.seed) == (expected.token_ids, expected.seed)
        cached += found.cached_tokens
    assert cached or "carried" in make


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranges", [False, True])
def test_the_prompts_of_a_batch_go_on_from_their_own(kind, ranges, tmp_path):
    dice, cached = Random(kind), set()
    make = {**KINDS[kind], "batch_size": 3, "ranges": ranges}
    bundle = shipping(tmp_path, cuts="states" not in kind, **make)
    for seed in range(6):
        texts = [dice.choice([*TEXTS.values(), [7, 6]]) for _ in range(dice.choice([2, 3]))]
        prompts = [text[: dice.randrange(1, len(text) + 1)] + [dice.randrange(5) for _ in range(3)] for text in texts]
        options = {"max_new_tokens": 20, "autoregressive": dice.random() < 0.3}
        options |= {"temperature": 1.0, "seed": seed} if "sampling" in make else {}
        expected = toy_bundle(**make).generate_batch(prompts, **options)
        found = bundle.generate_batch(prompts, **options)
        assert [each.token_ids for each in found] == [each.token_ids for each in expected]
        cached |= {each.cached_tokens for each in found}
        assert not any(each.cached_tokens for each in expected)
    assert 0 in cached
    assert len(cached) > 1 or "carried" in make
    alone = bundle.generate([8, 8, 8], max_new_tokens=9)
    assert (alone.cached_tokens, alone.token_ids) == (
        0,
        toy_bundle(**make).generate([8, 8, 8], max_new_tokens=9).token_ids,
    )


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        ([*SYSTEM, 8, 8], 12),
        ([*TEXTS["long"], 8], 32),
        ([*TEXTS["long"][:25], 8], 25),
        (SYSTEM, 11),  # the last token is always read
        ([9, 9, 8], 2),
        ([9, 8], 0),  # less than a tenth of the file
        ([8, 8, 8], 0),
    ],
)
def test_the_longest_match_is_used(prompt, cached, tmp_path):
    bundle = shipping(tmp_path)
    found = bundle.generate(prompt, max_new_tokens=9)
    assert found.cached_tokens == cached
    assert found.token_ids == toy_bundle().generate(prompt, max_new_tokens=9).token_ids
    assert bundle.generate(prompt, max_new_tokens=9).cached_tokens == cached


def test_a_longer_session_is_preferred(tmp_path):
    bundle, path = shipping(tmp_path), tmp_path / "mine"
    said = [*SYSTEM, *[8] * 30]
    bundle.generate(said, max_new_tokens=1, session=path)
    assert bundle.generate([*said, 7], max_new_tokens=4, session=path).cached_tokens == len(said)
    bundle.generate([8, 8], max_new_tokens=1, session=path)
    found = bundle.generate([*SYSTEM, 7], max_new_tokens=4, session=path)
    assert found.cached_tokens == len(SYSTEM)
    assert found.token_ids == toy_bundle().generate([*SYSTEM, 7], max_new_tokens=4).token_ids


def test_a_service_uses_them_for_every_client(tmp_path):
    prompt = [*TEXTS["long"], 8]
    expected = toy_bundle(batch_size=2).generate(prompt, max_new_tokens=9).token_ids
    with shipping(tmp_path, batch_size=2).serve() as service:
        asked = [service.submit(prompt, max_new_tokens=9, salt=salt) for salt in "abc"]
        found = [request.generations()[0] for request in asked]
        (unshared,) = service.submit(prompt, max_new_tokens=9, reuse=False).generations()
    assert [each.token_ids for each in (*found, unshared)] == [expected] * 4
    assert [each.cached_tokens for each in (*found, unshared)] == [32, 32, 32, 0]


def test_recurrent_states_take_whole_prefixes_alone(tmp_path):
    bundle = shipping(tmp_path, carried=True, cuts=False)
    options = {"max_new_tokens": 6, "autoregressive": True}
    assert bundle.generate([*TEXTS["long"], 8], **options).cached_tokens == 32
    assert bundle.generate([*TEXTS["long"][:25], 8], **options).cached_tokens == 12
    with bundle.serve() as service:
        (found,) = service.submit([*SYSTEM, 8], **options).generations()
    assert found.cached_tokens == len(SYSTEM)
    assert found.token_ids == toy_bundle(carried=True).generate([*SYSTEM, 8], **options).token_ids


def test_prefixes_that_do_not_fit_cost_a_note(tmp_path, caplog):
    bundle = shipping(tmp_path, key="b")
    assert bundle.generate([*SYSTEM, 8], max_new_tokens=4).cached_tokens == 0
    assert caplog.text.count("this prefix of the bundle is not used here") == len(TEXTS)
    assert "with target weights 'a', expected 'b'" in caplog.text


def test_an_empty_file_is_no_prefix(tmp_path, caplog):
    (tmp_path / f"empty{SUFFIX}").touch()
    bundle = toy_bundle()
    bundle._prefixes = ShippedPrefixes(bundle._sessions, bundle._loop.serves, [tmp_path / f"empty{SUFFIX}"])
    assert bundle.generate([*SYSTEM, 8], max_new_tokens=4).cached_tokens == 0
    assert "truncated one: 0 bytes" in caplog.text
