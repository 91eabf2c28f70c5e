"""The runtime in C++ against Python's: every kind of bundle of the suite, the same requests, the same answers."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tests import zoo
from tests.compile.combinations import BATCH_SIZE, FIRST, MAX_LENGTH, ON_STATES, REASON, Combination, every, is_tried
from tests.compile.tiny_bundles import each
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

ALL = [*(each for each in every() if is_tried(each)), *ON_STATES]

CHUNK = 16
"""Of the prefill."""

LENGTHS = (1, 3, CHUNK, 2 * CHUNK + 5, MAX_LENGTH - 9, MAX_LENGTH)
"""A prompt that fills the buffers ends before it begins."""

SETTINGS = (
    {"temperature": [0.8, 1.3], "top_k": [5, 40], "seed": [1, 2**64 - 1]},
    {"temperature": [0.6, 0.0], "top_p": [0.6, 0.9], "repetition_penalty": [1.0, 1.3], "seed": [3, 4]},
    {"temperature": 1.0, "min_p": [0.05, 0.2], "top_k": 8, "seed": 5, "frequency_penalty": [0.7, -0.3]},
)


def prompts() -> list[list[int]]:
    random = np.random.default_rng(11)
    return [[17, 230, 45, 99] * 4, *(random.integers(3, zoo.VOCABULARY, length).tolist() for length in LENGTHS)]


def batches(size: int) -> list[list[list[int]]]:
    asked = prompts()
    return [asked[start : start + size] for start in range(0, len(asked), size)]


def check_everything(both: SideBySide) -> None:
    """Check every way to decode, at every length of prompts; for sampling with every setting."""
    manifest = both.python.manifest
    for number, batch in enumerate(batches(manifest.batch_size)):
        ways = ({"adaptive": False}, {}, {"autoregressive": True})
        for way in ways:
            both.check(batch, max_new_tokens=20, logprobs=number % 2 == 0, **way)
        if manifest.decoding == "sampling" and len(batch) == BATCH_SIZE:
            for settings, way in chain(zip(SETTINGS, ways, strict=True), [(SETTINGS[0], {"autoregressive": True})]):
                both.check(batch, max_new_tokens=20, **settings, **way)
    if manifest.decoding == "sampling":
        both.check(prompts()[:1], num_return_sequences=manifest.batch_size, temperature=1.1, seed=9, max_new_tokens=30)
        both.check(prompts()[:1], repetition_penalty=1.2, max_new_tokens=30, adaptive=False)
        adjusted = {"logit_bias": {17: 2.5, 230: -100, 5: 0}, "presence_penalty": 1.7, "frequency_penalty": 0.1}
        for way in ({"adaptive": False}, {"autoregressive": True}):
            both.check(prompts()[:2], repetition_penalty=1.2, max_new_tokens=30, **adjusted, **way)
            both.check(prompts()[:2], max_new_tokens=30, temperature=0.9, seed=4, logit_bias=[None, {99: 3.25}], **way)


@pytest.mark.parametrize("combination", sweep_but(FIRST, ALL, REASON), ids=str)
def test_every_combination(workshop, native_library, onnxruntime_library, combination: Combination):
    folder = workshop.bundle(combination)
    both = SideBySide(folder, native_library, onnxruntime_library, proposer=combination.proposer)
    check_everything(both)
    assert both.native.description["exact"] == both.python.exact
    by_itself = both.python.speculative and combination.proposer is None
    assert both.native.description["speculative"] == by_itself


@pytest.mark.parametrize("name", each())
def test_texts_of_tiny_bundles(built, native_library, onnxruntime_library, name):
    """Compare texts, stop strings and streams, with end tokens and, but for one, a tokenizer."""
    bundle = built(name)
    both = SideBySide(bundle.path, native_library, onnxruntime_library)
    check_everything(both)
    if both.python.text is None:
        return
    for text in ("def f(", "größer als 你好 🙂", " a" * 60):
        (whole,) = both.check([text], max_new_tokens=24)
        stops = [whole.text[at : at + 2] for at in range(1, len(whole.text) - 2, 5)]
        for stop in stops:
            both.check([text], max_new_tokens=24, stop=[stop, "never"], adaptive=False)
        pieces = [piece for _, piece, _ in both.session.stream([text], max_new_tokens=24)]
        assert "".join(pieces) == whole.text


def test_kernels_of_onnxruntime_alone(built, native_library, onnxruntime_library, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "none")
    both = SideBySide(built("model_1").path, native_library, onnxruntime_library)
    assert both.native.description["kernels"] == both.python.kernels == "none"
    both.check(batches(3)[0], max_new_tokens=20)


def test_threads_change_nothing(built, native_library, onnxruntime_library):
    from tests.native.native_api import NativeBundle

    folder: Path = built("model_4").path
    one, two = (
        NativeBundle(folder, library=native_library, onnxruntime=onnxruntime_library, threads=count).session()
        for count in (1, 2)
    )
    for batch in batches(3):
        assert [row["token_ids"] for row in one.generate(batch)] == [row["token_ids"] for row in two.generate(batch)]
