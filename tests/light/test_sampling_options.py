"""Options of sampling: what is refused, in which words, and what is taken as it is."""

import re
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from speccompile.bundle.sampling import SAMPLING_OPTIONS, SETTINGS, SamplingParams
from speccompile.contract import BUFFERS
from speccompile.errors import PromptError, UsageError
from speccompile.runtime import GenerationOptions
from speccompile.runtime.options import (
    check_new_tokens,
    check_sequences,
    check_top_logprobs,
    resolve_stop_token_ids,
    row_samplings,
)
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.toy_models import VOCABULARY, autoregressive

PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def bundle():
    return toy_bundle(sampling=True, batch_size=2)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"temperature": -0.5}, r"temperature: received -0\.5, expected a number from 0 on", "0 is greedy"),
        ({"temperature": float("inf")}, "temperature: received inf, expected a number", "0 is greedy"),
        ({"temperature": float("nan")}, "temperature: received nan, expected a number", "0 is greedy"),
        ({"temperature": 1e39}, r"temperature: received 1e\+39, expected a number", "0 is greedy"),
        ({"temperature": "hot"}, "temperature: received 'hot', expected a number", "0 is greedy"),
        ({"temperature": b"1"}, "temperature: received b'1', expected a number", "0 is greedy"),
        ({"temperature": np.array(0.7)}, r"temperature: received array\(0\.7\), expected a number", "0 is greedy"),
        ({"temperature": np.float16("inf")}, "temperature: received inf, expected a number", "0 is greedy"),
        ({"temperature": True}, "temperature: received True, expected a number", "0 is greedy"),
        (
            {"temperature": 1e-6},
            "temperature: received 1e-06, expected 0, or 0.0001 or more",
            "0 is greedy",
        ),
        ({"top_k": -1}, "top_k: received -1, expected a whole number from 0 on", "0 keeps all tokens"),
        ({"top_k": 2.5}, r"top_k: received 2\.5, expected a whole number from 0 on", "0 keeps all tokens"),
        ({"top_p": 0}, "top_p: received 0, expected a number above 0 and at most 1", "1 keeps all tokens"),
        ({"top_p": 1.01}, r"top_p: received 1\.01, expected a number above 0 and at most 1", "1 keeps all"),
        ({"min_p": -0.1}, r"min_p: received -0\.1, expected a number from 0 to 1", "0 keeps all tokens"),
        ({"min_p": 2}, "min_p: received 2, expected a number from 0 to 1", "0 keeps all tokens"),
        (
            {"repetition_penalty": 0},
            "repetition_penalty: received 0, expected a number from 0.001 to 1000",
            "1 is none",
        ),
        ({"repetition_penalty": 10**40}, "repetition_penalty: received 1000", "1 is none, more repeats less"),
        ({"seed": -1}, r"seed: received -1, expected a whole number from 0 to 2\*\*64 - 1", "leave it out"),
        ({"seed": 2**64}, "seed: received 18446744073709551616, expected a whole number", "leave it out"),
        ({"temperature": [1, -1]}, "temperature of prompt 2: received -1, expected a number from 0 on", "0 is greedy"),
        (
            {"seed": np.array([1, 2, 3])},
            "seed: received 3 values, expected one, or one for each of 2 prompts",
            "give a single value",
        ),
        ({"top_p": []}, "top_p: received 0 values, expected one, or one for each of 2 prompts", "give a single value"),
        ({"num_return_sequences": 0}, "num_return_sequences: received 0, expected a whole number from 1 on", "give 1"),
        ({"num_return_sequences": 1.5}, r"num_return_sequences: received 1\.5, expected a whole number", "give 1"),
    ],
)
def test_values_that_are_refused(bundle, options, message, hint):
    with pytest.raises(UsageError, match=message) as caught:
        bundle.generate_batch([PROMPT, [9]], **options)
    assert caught.value.hint.startswith(hint)


def test_more_sequences_than_rows_are_refused(bundle):
    with pytest.raises(PromptError, match="2 prompts with 2 sequences each at once: expected 1 to 2") as caught:
        bundle.generate_batch([PROMPT, [9]], num_return_sequences=2)
    assert caught.value.hint == "build the bundle with a larger cache.batch_size"


@pytest.mark.parametrize("method", ["generate", "stream"])
def test_where_one_generation_comes_back_several_are_refused(bundle, method):
    message = "num_return_sequences: received 2, expected 1 where one generation comes back"
    with pytest.raises(UsageError, match=message) as caught:
        getattr(bundle, method)(PROMPT, num_return_sequences=2)
    assert caught.value.hint == "use generate_batch, which gives a list"


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"temperature": 0.8, "seed": 0}, r"temperature 0\.8, seed 0"),
        ({"temperature": [0, 0.5]}, r"temperature \[0, 0\.5\]"),
        ({"top_k": 1, "top_p": 1.0, "min_p": 0}, r"top_k 1, top_p 1\.0, min_p 0"),
        ({"repetition_penalty": 1.1}, r"repetition_penalty 1\.1"),
        ({"frequency_penalty": [0, 0.5]}, r"frequency_penalty \[0, 0\.5\]"),
        ({"logit_bias": [{3: 0}, {5: 1.5}]}, r"logit_bias \[\{3: 0\}, \{5: 1\.5\}\]"),
        ({"num_return_sequences": 2}, "num_return_sequences 2"),
    ],
)
def test_a_greedy_bundle_refuses_to_sample(options, received):
    message = f"received {received}, but the bundle was compiled for greedy decoding: sampling is not available"
    with pytest.raises(UsageError, match=message) as caught:
        toy_bundle(batch_size=4).generate_batch([PROMPT, [9]], **options)
    assert caught.value.hint == "leave these options out, or build the bundle with decoding: sampling"


def test_a_greedy_bundle_takes_what_changes_nothing():
    options = {"temperature": [0, 0.0], "repetition_penalty": 1, "seed": None, "num_return_sequences": 1}
    generations = toy_bundle(batch_size=2).generate_batch([PROMPT, [9]], max_new_tokens=5, **options)
    assert [each.token_ids for each in generations] == [autoregressive(PROMPT, 5), autoregressive([9], 5)]
    assert {each.seed for each in generations} == {None}


def test_numbers_of_any_kind_are_taken():
    options = {
        "temperature": np.float32(0.5), "top_k": np.array([10**30, 0]), "top_p": Fraction(1, 2), "min_p": None,
        "repetition_penalty": 2, "seed": (np.uint64(5), 2**64 - 1),
    }  # fmt: skip
    assert row_samplings(toy_manifest(sampling=True, batch_size=4), 2, 2, options) == [
        SamplingParams(0.5, top_k, 0.5, 0.0, 2.0, seed, sequence)
        for top_k, seed in ((VOCABULARY, 5), (0, 2**64 - 1))
        for sequence in (0, 1)
    ]


def test_an_option_that_does_not_exist_is_a_type_error(bundle):
    with pytest.raises(TypeError, match="unexpected keyword argument 'top_q'"):
        bundle.generate(PROMPT, top_q=1)


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", None, True])
def test_a_count_is_a_whole_number_from_one_on(value):
    for check in (check_new_tokens, lambda value: check_sequences(value, 1, None)):
        with pytest.raises(UsageError, match=re.escape(repr(value))):
            check(value)


def test_counts_that_are_taken():
    manifest = toy_manifest(batch_size=4)
    assert check_new_tokens(1) == check_sequences(1, 1, manifest) == 1
    assert check_sequences(2, 2, manifest) == 2
    assert check_sequences(9, 2, None) == 9
    for prompts, count in ((5, 1), (2, 3), (1, 5)):
        with pytest.raises(PromptError, match="expected 1 to 4"):
            check_sequences(count, prompts, manifest)


@pytest.mark.parametrize("wrong", [-1, 258, 1.0, "7", True, None, [3]])
def test_an_end_is_a_token(wrong):
    manifest = toy_manifest(eos_token_ids=(4,))
    with pytest.raises(UsageError, match="expected token ids from 0 to 257"):
        resolve_stop_token_ids([3, wrong], False, manifest)


def test_ends_are_those_asked_for_and_the_target_s():
    manifest = toy_manifest(eos_token_ids=(4, 5))
    assert resolve_stop_token_ids([0, 257], False, manifest) == {0, 257, 4, 5}
    assert resolve_stop_token_ids([0], True, manifest) == {0}
    assert resolve_stop_token_ids((), False, manifest) == {4, 5}
    assert resolve_stop_token_ids(3, True, manifest) == {3}


@pytest.mark.parametrize(
    ("value", "is_taken"), [(-1, False), (0, True), (258, True), (259, False), (True, False), (1.0, False)]
)
def test_a_count_of_best_tokens(value, is_taken):
    if is_taken:
        assert check_top_logprobs(value, toy_manifest()) == value
    else:
        with pytest.raises(UsageError, match="from 0 to 258"):
            check_top_logprobs(value, toy_manifest())


EDGES = {
    "temperature": ((0, 1e-4, 3.4e38), (-1e-9, 9.9e-5, 3.5e38, float("nan"))),
    "top_k": ((0, 1, 2**62), (-1, 1.5)),
    "top_p": ((1e-9, 0.5, 1), (0, -0.1, 1.0000001)),
    "min_p": ((0, 0.5, 1), (-1e-9, 1.0000001)),
    "repetition_penalty": ((0.001, 1, 1000), (0.0009, 1000.1, 0)),
    "frequency_penalty": ((-2, 0, 2), (-2.01, 2.01, float("nan"))),
    "presence_penalty": ((-2, 0, 2), (-2.01, 2.01, float("inf"))),
    "seed": ((0, 2**64 - 1), (-1, 2**64, 0.5)),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_ends_of_what_an_option_may_be(name):
    manifest, (taken, refused) = toy_manifest(sampling=True), EDGES[name]
    for value in taken:
        (row,) = row_samplings(manifest, 1, 1, {"temperature": 1.0, name: value})
        assert getattr(row, name) == (min(value, 258) if name == "top_k" else value)
    for value in refused:
        with pytest.raises(UsageError, match=name):
            row_samplings(manifest, 1, 1, {"temperature": 1.0, name: value})


def test_a_bundle_without_inputs_for_adjustments_refuses_them():
    whole = toy_manifest(sampling=True)
    names = ("adjusted", "biases", "penalties")
    graphs = tuple(
        replace(graph, inputs=tuple(tensor for tensor in graph.inputs if tensor.name not in names))
        for graph in whole.graphs
    )
    manifest = replace(whole, graphs=graphs)
    for name, value in (("frequency_penalty", 0.5), ("presence_penalty", -1), ("logit_bias", {5: 1})):
        options, biases = ({}, value) if name == "logit_bias" else ({name: value}, None)
        message = f"received {name}, but the bundle was built by an earlier version, without inputs for it"
        with pytest.raises(UsageError, match=message) as caught:
            row_samplings(manifest, 1, 1, options, biases)
        assert caught.value.hint == "leave it out, or build the bundle again"
    neutral = {"frequency_penalty": 0, "presence_penalty": 0.0}
    assert row_samplings(manifest, 1, 1, neutral, {5: 0, 7: 0.0}) == [SamplingParams()]


def test_sequences_of_prompts_are_numbered():
    rows = row_samplings(toy_manifest(sampling=True), 2, 3, {"temperature": [1.0, 0.5], "seed": [7, 8]})
    assert [(row.temperature, row.seed, row.sequence) for row in rows] == [
        *((1.0, 7, number) for number in range(3)),
        *((0.5, 8, number) for number in range(3)),
    ]


def test_a_row_that_is_asked_nothing_is_greedy():
    neutral = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    neutral |= {"frequency_penalty": 0.0, "presence_penalty": 0.0}
    assert vars(SamplingParams()) == neutral | {"seed": 0, "sequence": 0, "logit_bias": ()}
    assert SamplingParams().shown_seed is None
    assert SamplingParams(temperature=0.5, seed=3).shown_seed == 3
    with pytest.raises(PromptError, match=r"^5 prompts at once: expected 1 to 4$"):
        check_sequences(1, 5, toy_manifest(batch_size=4))
    with pytest.raises(PromptError, match=r"^3 prompts with 2 sequences each at once: expected 1 to 4$"):
        check_sequences(2, 3, toy_manifest(batch_size=4))


def test_every_option_is_in_every_record():
    """Name the first record without an option: CONTRIBUTING.md lists the files of a new one."""
    for record in (SamplingParams, GenerationOptions):
        assert SAMPLING_OPTIONS.keys() - {each.name for each in fields(record)} == set(), record
    numbers = SAMPLING_OPTIONS.keys() - {"seed"}
    assert SETTINGS.keys() == {name for name in numbers if SAMPLING_OPTIONS[name].is_input} <= set(BUFFERS)
    defaults = {name: getattr(SamplingParams(), name) for name in numbers}
    assert {name: SAMPLING_OPTIONS[name].neutral for name in numbers} == defaults
