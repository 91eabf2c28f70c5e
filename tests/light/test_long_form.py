"""Transcription window by window over given answers: thresholds and context, by the rules of transformers."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from speccompile.bundle.sources import TIMESTAMPS
from speccompile.contract import Tensor
from speccompile.runtime.audio.reader import HeardSound
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.transcription.long_form import LongForm, Transcription
from tests.light.bundle_example import manifest
from tests.light.test_audio import AUDIO, SECTION

PREVIOUS, END, NO_TIMES, SIZE = 9, 10, 13, 24
FIRST, SILENCE = NO_TIMES + 1, NO_TIMES - 1
LENGTH = 40
"""Capacity of the bundle, in tokens."""
WINDOW = int(AUDIO["frames"])


class Decoder:
    """Answers the same at each temperature, and notes what it was asked."""

    def __init__(self, scores: dict[float, list[float]]) -> None:
        """scores: temperature -> log-probabilities of tokens."""
        self._scores = scores
        self.prompts: list[list[int]] = []
        self.temperatures: list[float] = []

    def __call__(self, prompt: list[int], options: GenerationOptions, matcher: Any) -> Any:
        if options.ignore_eos:  # is anybody speaking?
            matcher.first_logits = np.full(SIZE, -9, np.float32)
            matcher.first_logits[SILENCE] = 9
            return SimpleNamespace(token_ids=[1])
        self.prompts.append(list(prompt))
        self.temperatures.append(options.temperature)
        matcher.scores = self._scores[options.temperature]
        return SimpleNamespace(token_ids=[FIRST, 1])


def segments(
    decoder: Decoder, *, windows: int = 1, temperatures: tuple[float, ...] = (0.0,), text: Any = None, **form: Any
) -> list[Any]:
    made = manifest(vocabulary_size=SIZE, max_length=LENGTH, eos_token_ids=(END,))
    times = Tensor(TIMESTAMPS, "bool", (1,), TIMESTAMPS, "io")
    graph = dataclasses.replace(made.graphs[0], inputs=(*made.graphs[0].inputs, times))
    audio = AUDIO | {"no_timestamps": NO_TIMES, "previous": PREVIOUS, "suppressed": [], "begin_suppressed": []}
    made = dataclasses.replace(made, graphs=(graph,), source=SECTION | {"audio": audio})
    sound = HeardSound(np.zeros((80, windows * WINDOW), np.float32), float(windows))
    options = GenerationOptions(max_new_tokens=5, temperature=temperatures)  # type: ignore[arg-type]
    settings = {"no_speech_threshold": None, "compression_ratio_threshold": None} | form
    return list(Transcription(decoder, made, text, sound, "de", options, LongForm(**settings)))


@pytest.mark.parametrize(("temperature", "has_context"), [(0.4, True), (0.5, False), (0.6, False)])
def test_a_text_that_was_written_hot_is_no_context(temperature, has_context):
    decoder = Decoder({0.0: [-2.0, -2.0], temperature: [-0.5, -0.5]})
    assert len(segments(decoder, windows=2, temperatures=(0.0, temperature), condition_on_previous_text=True)) == 2
    assert decoder.temperatures == [0.0, temperature] * 2
    first, _, second, _ = decoder.prompts
    assert second == ([PREVIOUS, FIRST, 1, *first] if has_context else first)


@pytest.mark.parametrize(
    ("threshold", "score", "is_silent"), [(None, -0.5, True), (-1.0, -0.5, False), (-1.0, -2.0, True)]
)
def test_a_window_is_silent_where_its_text_is_unlikely_or_nobody_asks_for_that(threshold, score, is_silent):
    found = segments(Decoder({0.0: [score] * 2}), no_speech_threshold=0.6, logprob_threshold=threshold)
    assert len(found) == (not is_silent)


def test_scores_behind_the_text_say_nothing_of_it():
    decoder = Decoder({0.0: [-0.5, -0.7, -9.0], 0.5: [0.0, 0.0]})
    (segment,) = segments(decoder, temperatures=(0.0, 0.5))
    assert decoder.temperatures == [0.0]
    assert segment.avg_logprob == pytest.approx(-0.6)


def test_half_of_the_capacity_is_left_for_what_stood_before():
    text = SimpleNamespace(encode=lambda *_, **__: list(range(60)), decode=lambda _: "")
    decoder = Decoder({0.0: [-0.5, -0.5]})
    segments(decoder, timestamps=True, text=text, initial_prompt="names")
    (prompt,) = decoder.prompts
    assert prompt[: LENGTH // 2] == [PREVIOUS, *range(60)[-(LENGTH // 2 - 1) :]]
    assert prompt[LENGTH // 2] == SECTION["start_token_id"]
