"""Sessions: tokens from a file equal those from scratch, with every kind of drafter; everything wrong with a file."""

from random import Random

import pytest

from tests.light.fake_bundle import toy_bundle
from tests.light.test_rows import KINDS

PROMPT = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 2]


def sampling(kind, seed: int):
    return {"temperature": 1.0, "seed": seed} if "sampling" in KINDS[kind] else {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranges", [False, True])
def test_continued_from_a_file_is_from_scratch(kind, ranges, tmp_path):
    dice, path, cached = Random(kind), tmp_path / "s", 0
    for seed in range(6):
        make = {**KINDS[kind], "batch_size": dice.choice([1, 2]), "ranges": ranges}
        autoregressive = [dice.random() < 0.3 for _ in range(2)]
        first = toy_bundle(**make).generate(
            PROMPT, session=path, max_new_tokens=dice.randrange(1, 30), autoregressive=autoregressive[0],
            **sampling(kind, seed),
        )  # fmt: skip
        said = PROMPT + first.token_ids
        kept = said[: dice.choice([len(said), len(said) - 1, dice.randrange(1, len(said))])]
        prompt = kept + [dice.randrange(5) for _ in range(dice.randrange(1, 20))]
        options = {"max_new_tokens": 25, "autoregressive": autoregressive[1], **sampling(kind, seed + 1)}
        expected = toy_bundle(**make).generate(prompt, **options)
        found = toy_bundle(**make).generate(prompt, session=path, **options)
        assert (found.token_ids, found.seed) == (expected.token_ids, expected.seed)
        cached += found.cached_tokens
        path.unlink()
    assert cached or "carried" in KINDS[kind]
