"""What the proof makes of a difference: a refusal with its place and its margin, or a near-tie that it reports."""

import re
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from speccompile.compiler.prove import graphs, reference, tokens, tolerance
from speccompile.contract import Tensor
from speccompile.errors import ProofError
from tests.compile.tiny_bundles import Built


def spoiled(case: Built, index: int | None) -> tokens.Case:
    """Return the case of a prompt whose speculative generation gives another token at `index`, or ends one early."""
    if not case.bundle.exact:
        pytest.skip(f"the engine is not exact here: {case.bundle.exactness.reason}")
    (whole,) = tokens.decode_both(case.bundle, [case.prompts()[2]], 6)
    ids = list(whole.speculative.token_ids)
    if index is None:
        ids.pop()
    else:
        ids[index] = (ids[index] + 1) % case.bundle.manifest.vocabulary_size
    return replace(whole, speculative=replace(whole.speculative, token_ids=ids))


def eager(case: Built, prompt: list[int]) -> np.ndarray:
    """Return the logits after the prompt, by transformers."""
    with torch.no_grad():
        return case.target(torch.tensor([prompt])).logits[0, -1].numpy()


def test_equal_tokens_are_no_difference(built):
    case = built("lookup_5")
    for found in tokens.decode_both(case.bundle, case.prompts(), 6):
        assert tokens.check_equal(case.bundle, found) is None


def test_a_difference_is_told_with_both_tokens_and_the_margin(built):
    case = built("lookup_5")
    found = spoiled(case, 3)
    ours, theirs = found.speculative.token_ids, found.autoregressive.token_ids
    logits = eager(case, found.prompt_ids + theirs[:3])
    message = (
        rf"^prompt 1 \(token ids {', '.join(map(str, found.prompt_ids))}\): at new token 3 speculative decoding gives "
        rf"{ours[3]}, autoregressive {theirs[3]}; the margin between the two is (.*) \(top-two margin (.*)\)$"
    )
    with pytest.raises(ProofError, match=message) as caught:
        tokens.check_equal(case.bundle, found)
    margins = re.search(message, str(caught.value)).groups()
    second, first = np.sort(logits)[-2:]
    assert list(map(float, margins)) == pytest.approx([first - logits[ours[3]], first - second], rel=0.01)
    assert (caught.value.exit_code, caught.value.hint[:11]) == (3, "speculation")


def test_a_generation_that_ends_early_is_a_difference(built):
    case = built("lookup_5")
    with pytest.raises(ProofError, match="speculative decoding gives 5 new tokens, autoregressive 6"):
        tokens.check_equal(case.bundle, spoiled(case, None))


def test_a_difference_within_the_noise_is_reported(built, monkeypatch):
    case = built("lookup_5")
    monkeypatch.setitem(tolerance.TOLERANCE, "float32", 2.0)
    monkeypatch.setitem(tolerance.QUANTIZATION_TOLERANCE, "float32", 2.0)
    found = spoiled(case, 3)
    tie = tokens.check_equal(case.bundle, found)
    assert (tie["prompt"], tie["index"]) == (1, 3)
    assert tie["tokens"] == [found.speculative.token_ids[3], found.autoregressive.token_ids[3]]
    proven = reference.check_cases(case.target, [found], "float32")
    assert (proven["prompts"], proven["equal"]) == (1, 0)
    assert proven["near_ties"][0]["index"] == 3


def test_a_token_that_no_text_has_is_no_near_tie():
    logits = np.array([[1.0, 3.0, -np.inf]], np.float32)
    assert reference.check_greedy(logits, [1], "float32", "prompt 1", "speculative decoding") == []
    for token in (0, 2):
        with pytest.raises(ProofError, match=f"at new token 0 .* gives {token}, transformers' greedy"):
            reference.check_greedy(logits, [token], "float32", "prompt 1", "speculative decoding")


def test_an_approximate_method_may_differ_and_autoregressive_tokens_may_not(built):
    case = built("lookup_5")
    found = spoiled(case, 3)
    loose = replace(found, speculative=replace(found.speculative, exact=False))
    assert tokens.check_equal(case.bundle, loose) is None
    assert tokens.summary([loose], [])["equal"] == 0
    assert reference.check_cases(case.target, [loose], "float32")["equal"] == 1
    wrong = replace(loose, autoregressive=replace(found.speculative, mode="autoregressive"))
    with pytest.raises(ProofError, match="at new token 3 autoregressive decoding gives"):
        reference.check_cases(case.target, [wrong], "float32")


def test_a_long_prompt_is_shortened_in_messages(built):
    case = built("lookup_5")
    (whole,) = tokens.decode_both(case.bundle, [case.prompts()[6]], 2)
    assert whole.where == f"prompt 1 (token ids {', '.join(map(str, whole.prompt_ids[:8]))}, ..)"


def test_two_graphs_of_one_round_must_agree_in_everything():
    one = [{"n_path": np.array([1]), "logits": np.array([1.0, 10.0], np.float32)}]
    assert graphs.check_same(one, one, "verify", "a against b", "float32")["values"] == 3
    other = [one[0] | {"n_path": np.array([2])}]
    with pytest.raises(ProofError, match=r"^verify, a against b, n_path after window 0: \[1\], expected \[2\]$"):
        graphs.check_same(one, other, "verify", "a against b", "float32")
    for wrong, difference in ((10.01, "0.01"), (float("nan"), "nan")):
        other = [one[0] | {"logits": np.array([1.0, wrong], np.float32)}]
        message = f"logits after window 0: differs by {difference}, more than 0.0002 of the largest value 10"
        with pytest.raises(ProofError, match=message):
            graphs.check_same(other, one, "verify", "a against b", "float32")


def test_other_drafts_are_counted_or_told_with_their_window():
    right = [{"next_window": np.array([[3, 4]]), "next_probs": np.array([1.0])} for _ in range(3)]
    wrong = [right[0], right[1] | {"next_window": np.array([[3, 5]]), "next_probs": np.array([0.5])}, right[2]]
    assert "other_drafts" not in graphs.check_same(right, right, "draft", "a against b", "float32")
    assert graphs.check_same(wrong, right, "draft", "a against b", "float32")["other_drafts"] == 1
    row = graphs.check_exact(right, right, "draft", "a against b")
    assert (row["values"], row["tolerance"]) == (9, 0.0)
    message = r"^draft, a against b, next_window after window 1: \[\[3, 5\]\], expected \[\[3, 4\]\]$"
    with pytest.raises(ProofError, match=message) as caught:
        graphs.check_exact(wrong, right, "draft", "a against b")
    assert caught.value.hint.startswith("the graph computes something else")


def test_reduced_precision_may_lose_so_much_and_no_more():
    right = [{"path": np.array([[3, 4]]), "logits": np.array([3.0, 4.0], np.float32)}]
    near = [{"path": np.array([[3, 5]]), "logits": np.array([3.0, 4.05], np.float16)}]
    row = graphs.check_near(near, right, "verify", "half against whole", "float16")
    assert (row["values"], row["tokens"], row["same_tokens"], row["tolerance"]) == (
        2,
        2,
        1,
        tolerance.TOLERANCE["float16"],
    )
    for wrong, error in ((4.5, "0.5"), (float("nan"), "nan")):
        far = [near[0] | {"logits": np.array([3.0, wrong], np.float32)}]
        message = f"^verify, half against whole, logits after window 0: differs by {error}, more than 0.02 of the larg"
        with pytest.raises(ProofError, match=message):
            graphs.check_near(far, right, "verify", "half against whole", "float16")


def test_tokens_of_quantized_weights_are_counted_not_refused(built):
    case = built("lookup_5")
    found = spoiled(case, 3)
    row = reference.check_cases(case.target, [found], "int4")
    assert (row["prompts"], row["tokens"]) == (1, 6)
    assert 1 <= row["same_tokens"] <= 5
    with pytest.raises(ProofError, match="at new token 3 speculative decoding gives"):
        reference.check_cases(case.target, [found], "float16")


@pytest.mark.parametrize("word", ["int4", "int8", "stored", "w8a8"])
def test_quantized_weights_are_judged_by_themselves_whatever_the_caches(built, word):
    case = built("lookup_5")
    scales = Tensor("target.value_scale.0", "float32", (1, 2, 48, 2), "target.value_scale.0", "state")
    verify = case.bundle.entry.graphs[0]
    coded = replace(verify, inputs=(*verify.inputs, scales))
    entry = replace(case.bundle.entry, precision={"target": word}, graphs=(coded,))
    assert reference.judging_precision(case.target, entry) == word
    floats = replace(entry, precision={"target": "float32"})
    assert reference.judging_precision(case.target, floats) == "int4 values"


def test_bfloat16_is_judged_as_float32_where_nothing_is_lost(built):
    """ONNX Runtime's CPU provider stores it, and computes in float32."""
    case = built("lookup_5")
    here = replace(case.bundle.entry, precision={"target": "bfloat16"})
    stored = deepcopy(case.target).to(torch.bfloat16).float()
    assert reference.judging_precision(stored, here) == "float32"
    assert reference.judging_precision(case.target, here) == "bfloat16"
    assert reference.judging_precision(stored, replace(here, provider="cuda")) == "bfloat16"
    assert reference.judging_precision(case.target, replace(here, precision={"target": "float32"})) == "float32"
