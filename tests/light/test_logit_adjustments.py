"""The inputs for logit biases, frequency and presence penalties, node by node, against OpenAI's formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.bundle.sampling import MOST_BIASES, SamplingParams, most_adjusted
from speccompile.cli.main import main
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.logit_adjustments import LogitAdjustments
from speccompile.runtime.rounds.sampling_inputs import SamplingInputs
from tests.light.fake_bundle import toy_manifest
from tests.light.toy_engine import STATIC, ToyEngine
from tests.light.toy_models import VOCABULARY, adjustments

PROMPT = [3, 1, 4, 1, 5]
NAMES = ("adjusted", "biases", "penalties")

tokens = st.lists(st.integers(0, 9), max_size=12)
samplings = st.builds(
    SamplingParams,
    frequency_penalty=st.sampled_from([0.0, 0.5, -1.5]),
    presence_penalty=st.sampled_from([0.0, 1.25]),
    logit_bias=st.dictionaries(st.integers(0, 9), st.sampled_from([-100.0, 0.5, 3.0]), max_size=5).map(
        lambda found: tuple(sorted(found.items()))
    ),
)


def sequence(new: list[int], sampling: SamplingParams) -> SequenceState:
    row = SequenceState(PROMPT, 64, 160, (), None, sampling)
    row.token_ids.extend(new)
    return row


@pytest.mark.parametrize("tree", ["chain", "static"])
def test_every_node_has_what_the_formula_says(tree):
    manifest = toy_manifest(tree=tree, sampling=True, batch_size=2)
    parents = STATIC.parents if tree == "static" else range(-1, manifest.tokens)

    @given(tokens, samplings, st.lists(st.integers(0, 9), max_size=manifest.tokens), tokens)
    @settings(max_examples=60)
    def check(new, sampling, drafts, later):
        engine = ToyEngine(manifest)
        inputs, row = LogitAdjustments(engine, manifest), sequence(new, sampling)
        inputs.admit(1, row)
        window = np.array([[7, *range(manifest.tokens)], [7, *drafts, *[0] * (manifest.tokens - len(drafts))]])
        rows = manifest.tokens + 1
        for _ in range(2):  # the second round has more new tokens
            width = inputs.width([0, 1], rows)
            inputs.write([0, 1], window, [1, 1], [rows, 1 + len(drafts)], rows)
            arrays = [engine.host_view(name, (2, rows, width)) for name in NAMES]
            assert (width > 1) == sampling.adjusts_logits
            assert not arrays[1][0].any()
            assert not arrays[2][0].any()
            for node in range(len(drafts) + 1):
                path, each = [], node
                while each > 0:
                    path.append(drafts[each - 1])
                    each = parents[each]
                expected = adjustments(row.token_ids + path, sampling)
                found = {}
                for token, bias, penalty in zip(*(array[1, node].tolist() for array in arrays), strict=True):
                    assert found.setdefault(token, (bias, penalty)) == (bias, penalty)
                found = {token: values for token, values in found.items() if any(values)}
                expected = {token: values for token, values in expected.items() if any(values)}
                assert found == expected, node
            row.token_ids.extend(later)

    check()


def test_widths_are_powers_of_two_up_to_what_may_be_adjusted():
    manifest = toy_manifest(sampling=True, max_length=160, batch_size=1)
    row = sequence([], SamplingParams(presence_penalty=1))
    inputs = LogitAdjustments(ToyEngine(manifest), manifest)
    inputs.admit(0, row)
    widths = []
    for token in range(VOCABULARY):
        row.token_ids.append(token)
        widths.append(inputs.width([0], 1))
    assert list(dict.fromkeys(widths)) == [2, 4, 8, 16, 32, 64, 128, 256, VOCABULARY]
    inputs.release(0)
    assert inputs.width([0], 1) == 1
    assert most_adjusted(50_000, 160, 4) == MOST_BIASES + 164
    assert most_adjusted(1, 160, 4) == 2


def test_a_slot_that_loses_its_tokens_leaves_nothing_to_the_next():
    manifest = toy_manifest(sampling=True, batch_size=1)
    engine = ToyEngine(manifest)
    inputs = LogitAdjustments(engine, manifest)
    inputs.admit(0, sequence([], SamplingParams(logit_bias=((3, 5.0), (9, 1.0)))))
    inputs.write([0], np.array([[7]]), [1], [1], 1)
    inputs.admit(0, sequence([], SamplingParams(frequency_penalty=1)))
    inputs.write([0], np.array([[7]]), [1], [1], 1)
    arrays = [engine.host_view(name, (1, 1, 2)) for name in NAMES]
    assert not arrays[1].any()
    assert not arrays[2].any()


def test_a_bundle_without_the_inputs_has_none_written():
    manifest = toy_manifest(sampling=True, batch_size=1)
    sampler = SamplingInputs(ToyEngine(manifest), manifest, ())
    assert sampler.adjusted_width([0], 5) == 1
    sampler.adjust([0], np.array([[7]]), [1], [1], 1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["5"], "--logit-bias 5: received a text of another form"),
        (["a=1"], "--logit-bias a=1: received a text of another form"),
        (["5=x"], "--logit-bias 5=x: received a text of another form"),
        (["5=1e2"], "--logit-bias 5=1e2: received a text of another form"),
        (["5=1", "5=2"], "--logit-bias 5=2: received the token twice"),
    ],
)
def test_what_is_no_bias_is_told(tmp_path, capsys, given, problem):
    options = [each for text in given for each in ("--logit-bias", text)]
    with pytest.raises(SystemExit) as caught:
        main(["generate", str(tmp_path), "--prompt", "x", *options])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert f"{problem}, expected ID=VALUE once for a token" in said
    assert "hint: as in --logit-bias 262=-100" in said
