"""The host's drafts in the place of a graph's, over a toy engine: the target's own tokens, and the drafter runs only
where it has to."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.errors import BundleError, UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.rounds.host_drafts import find_proposer
from tests.light.fake_bundle import toy_manifest
from tests.light.forced_lengths import force
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import VOCABULARY, autoregressive, path_lengths

PROMPT = [3, 1, 4, 1, 5]
TOKENS = 4
GATE = {"kind": "retrieval", "tokens": TOKENS, "ngram": 16, "match": 5}

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)


class Index:
    """Proposes so many of the target's own tokens, and `wrong` ones more, as `counts` says of each text."""

    def __init__(self, counts: Callable[[Sequence[int]], int], wrong: int = 0) -> None:
        self.counts, self.wrong, self.asked = counts, wrong, list[list[int]]()

    def propose(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        self.asked.append(list(tokens))
        if not (count := self.counts(tokens)):
            return [], []
        drafts = autoregressive(tokens, count + 1)
        drafts = drafts[:-1] + [(drafts[-1] + 1) % VOCABULARY] * self.wrong
        return drafts, list(range(-1, len(drafts) - 1))


def gated(proposer: object, **changes: object) -> Bundle:
    """Return a bundle whose graph drafts a chain where the proposer does not."""
    made = toy_manifest(**({"tokens": TOKENS, "catch_up": TOKENS + 1} | changes))
    made.plan["drafter"] = {"kind": "model", "cascade": {"gate": GATE}}
    return Bundle(made, ToyEngine(made), made.engines[0], None, None, proposer)


KINDS = pytest.mark.parametrize("kind", [{}, {"features": True}, {"sampling": True}], ids=["model", "taps", "sampling"])


@KINDS
@given(
    st.lists(prompts, min_size=1, max_size=3), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 2)
)
@settings(max_examples=40)
def test_every_row_gets_the_targets_own_tokens(kind, rows, counts, wrong):
    bundle = gated(Index(lambda text: counts[len(text) % len(counts)], wrong), batch_size=len(rows), **kind)
    options = {"temperature": 1.0, "seed": 3} if kind.get("sampling") else {}
    expected = bundle.generate_batch(rows, max_new_tokens=30, autoregressive=True, **options)
    for widths in (None, [TOKENS + 1, 1, 1, TOKENS + 1, TOKENS + 1, 3]):
        if widths:
            force(bundle, widths)
        found = bundle.generate_batch(rows, max_new_tokens=30, adaptive=bool(widths), **options)
        assert [each.token_ids for each in found] == [each.token_ids for each in expected]


def test_the_drafter_is_left_out_while_the_index_drafts_and_catches_up_afterwards():
    whole = PROMPT + autoregressive(PROMPT, 60)
    known = range(len(PROMPT) + 1, len(PROMPT) + 24)  # texts of these lengths are in the index
    bundle = gated(Index(lambda text: TOKENS if len(text) in known else 0), prefill_chunk=8)
    generation = bundle.generate(PROMPT, max_new_tokens=60, adaptive=False)
    assert generation.token_ids == whole[len(PROMPT) :]
    runs = bundle.engine.runs
    # With the prompt the drafter reads it. Then texts of 11, 16, 21 and 26 tokens are known, and one of 31 is not.
    assert runs[:2] == ["verify", "draft"]
    assert generation.path_lengths[:5] == [TOKENS + 1] * 5
    assert runs[2:12] == [*["verify"] * 5, *["draft"] * 4, "verify"]  # 25 tokens in chunks of 8
    assert runs[12:] == ["draft", "verify"] * (generation.rounds - 6)


def test_where_nothing_is_found_it_is_the_drafters_own_rounds():
    index = Index(lambda text: 0)
    bundle = gated(index)
    generation = bundle.generate(PROMPT, max_new_tokens=40, adaptive=False)
    assert generation.path_lengths == path_lengths(PROMPT, 40, TOKENS)
    assert bundle.engine.runs.count("draft") == len(index.asked)


def test_one_row_of_a_batch_has_drafts_of_the_index_and_the_other_its_own():
    other = [9, 2, 6]
    bundle = gated(Index(lambda text: TOKENS if text[: len(PROMPT)] == PROMPT else 0), batch_size=2)
    rows = bundle.generate_batch([PROMPT, other], max_new_tokens=41, adaptive=False)
    assert [each.token_ids for each in rows] == [autoregressive(each, 41) for each in (PROMPT, other)]
    assert rows[0].path_lengths == [TOKENS + 1] * 8
    assert rows[1].path_lengths == path_lengths(other, 41, TOKENS)


def test_a_drafter_that_reads_features_runs_in_any_case():
    bundle = gated(Index(lambda text: TOKENS), features=True)
    generation = bundle.generate(PROMPT, max_new_tokens=41, adaptive=False)
    assert generation.path_lengths == [TOKENS + 1] * 8
    assert bundle.engine.runs.count("draft") == 8


def test_what_the_policy_is_told_of_rounds_without_the_drafter():
    bundle = gated(Index(lambda text: TOKENS if len(text) < 20 else 0))
    policy = force(bundle, [TOKENS + 1])
    assert bundle.generate(PROMPT, max_new_tokens=40).token_ids == autoregressive(PROMPT, 40)
    assert policy.caught_up_with == [len(PROMPT)]  # catching up is what a draft costs here, and told as that


def test_without_drafts_the_index_is_not_asked():
    index = Index(lambda text: TOKENS)
    bundle = gated(index)
    bundle.generate(PROMPT, max_new_tokens=20, autoregressive=True)
    force(bundle, [1])
    bundle.generate(PROMPT, max_new_tokens=20)
    assert not index.asked


def test_a_proposer_takes_the_place_of_the_index(tmp_path):
    index, made = Index(lambda text: 0), gated(None).manifest
    assert find_proposer(tmp_path, made, index) is index
    with pytest.raises(UsageError, match="proposer: received int"):
        find_proposer(tmp_path, made, 5)
    with pytest.raises(BundleError):
        find_proposer(tmp_path, made, None)  # its index is not there
