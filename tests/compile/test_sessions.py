"""Generations that go on from a session file, over bundles of every kind of drafter: tokens and log-probabilities equal
those from scratch, bit for bit."""

from random import Random

import pytest

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from speccompile.serving.scheduler import SessionFolder
from tests.compile.combinations import BATCH_SIZE
from tests.compile.test_serving_exact import FEW, KINDS
from tests.suite.selection import sweep_but


def reusing(combinations):
    return [each for each in combinations if not each.pair]  # a service refuses recurrent states


REASON = "every kind of drafter and of recurrent state: half a minute"


@pytest.mark.parametrize("combination", sweep_but(FEW, KINDS, REASON), ids=str)
def test_continued_from_a_file_is_from_scratch(workshop, combination, tmp_path):
    folder, path = workshop.bundle(combination, batch_size=BATCH_SIZE), tmp_path / "s"
    writer, reader = (Bundle.open(folder, threads=1, proposer=combination.proposer) for _ in range(2))
    dice, cached = Random(str(combination)), 0
    for seed in range(8):
        samples = combination.decoding == "sampling" and dice.random() < 0.6
        options = {"temperature": 0.9, "seed": seed} if samples else {}
        options |= {"logprobs": True, "adaptive": dice.random() < 0.5}
        prompt = [dice.randrange(3, 200) for _ in range(dice.randrange(1, 24))]
        said = prompt + writer.generate(prompt, session=path, max_new_tokens=dice.randrange(1, 15), **options).token_ids
        kept = said[: dice.choice([len(said), len(said) - 1, dice.randrange(1, len(said))])]
        longer = kept + [dice.randrange(3, 200) for _ in range(dice.randrange(1, 9))]
        options |= {"max_new_tokens": 14, "autoregressive": dice.random() < 0.3}
        expected = writer.generate(longer, **options)
        found = reader.generate(longer, session=path, **options)
        for name in ("token_ids", "logprobs", "seed", "finish_reason"):
            assert getattr(found, name) == getattr(expected, name)
        cached += found.cached_tokens
        path.unlink()
    assert cached or combination.pair


@pytest.mark.parametrize("combination", sweep_but(*map(reusing, (FEW, KINDS)), REASON), ids=str)
def test_a_service_goes_on_after_a_restart(workshop, combination, tmp_path):
    folder = workshop.bundle(combination, batch_size=BATCH_SIZE)
    dice, said, cached = Random(str(combination)), [[7] * 20], 0
    alone = Bundle.open(folder, threads=1, proposer=combination.proposer)
    for seed in range(5):
        samples = combination.decoding == "sampling" and dice.random() < 0.6
        options = {"temperature": 0.9, "seed": seed} if samples else {}
        # A fixed length every other time: a drafter that rests has read nothing, so that its text is read again for it.
        options |= {"logprobs": True, "max_new_tokens": 12, "adaptive": bool(seed % 2)}
        prompt = [*dice.choice(said)[: dice.randrange(16, 40)], *(dice.randrange(3, 200) for _ in range(4))]
        expected = alone.generate(prompt, **options)
        bundle = Bundle.open(folder, threads=1, proposer=combination.proposer)
        with bundle.serve(sessions=SessionFolder(tmp_path)) as service:
            beside = service.submit([dice.randrange(3, 200) for _ in range(18)], max_new_tokens=9)
            (found,) = service.submit(prompt, **options).generations()
            beside.generations()
        for name in ("token_ids", "logprobs", "seed", "finish_reason"):
            assert getattr(found, name) == getattr(expected, name)
        said.append(prompt + found.token_ids)
        cached += found.cached_tokens
    assert cached


def test_another_drafter_of_the_same_target_reads_the_text_again(workshop, tmp_path, caplog):
    first, second = (each for each in FEW if each.tree == "static" and each.decoding == "sampling")
    writer, reader = (Bundle.open(workshop.bundle(each, batch_size=BATCH_SIZE), threads=1) for each in (first, second))
    prompt = [17, 230, 45, 99, 101] * 3
    said = prompt + writer.generate(prompt, session=tmp_path / "s", max_new_tokens=8).token_ids
    expected = reader.generate([*said, 5], max_new_tokens=12, logprobs=True)
    found = reader.generate([*said, 5], max_new_tokens=12, logprobs=True, session=tmp_path / "s")
    assert (found.token_ids, found.logprobs) == (expected.token_ids, expected.logprobs)
    assert "was written with another drafter" in caplog.text


def test_another_target_is_refused(workshop, built, tmp_path):
    writer = Bundle.open(built("model_1").path, threads=1)
    writer.generate([5, 6, 7], session=tmp_path / "s", max_new_tokens=4)
    reader = Bundle.open(built("model_4").path, threads=1)
    with pytest.raises(UsageError, match="received a session with target weights 'target"):
        reader.generate([5, 6, 7], session=tmp_path / "s")
