"""Times in transcripts: their rules against transformers' processor, windows, long sounds, and subtitles."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers
from transformers.generation import WhisperTimeStampLogitsProcessor

from speccompile.errors import PromptError, UsageError
from speccompile.runtime.audio.mel import long_log_mel
from speccompile.runtime.audio.reader import read_long_sound, transcript_start
from speccompile.runtime.audio.resample import resample
from speccompile.runtime.audio.rules import RuleMatcher, TimeRules, TokenRules, Written
from speccompile.runtime.transcription.long_form import LongForm
from speccompile.runtime.transcription.segments import Segment, compression_ratio, cut_at_times, previous_tokens
from speccompile.runtime.transcription.subtitles import clock, srt_block, timed_line, vtt_block
from tests.light.bundle_example import manifest
from tests.light.test_audio import AUDIO, SECTION, riff

FIRST, END, SIZE = 14, 10, 24
"""Token of the time 0.00, end token, and tokens of a small vocabulary."""


def processor(max_initial):
    config = transformers.GenerationConfig(eos_token_id=END)
    config.no_timestamps_token_id, config.max_initial_timestamp_index = FIRST - 1, max_initial
    return WhisperTimeStampLogitsProcessor(config, begin_index=2)


@pytest.mark.parametrize("max_initial", [None, 4])
def test_rules_of_times_are_those_of_transformers(max_initial):
    theirs, random = processor(max_initial), np.random.default_rng(0)
    rules = TokenRules(*[np.ones(SIZE, bool)] * 2, TimeRules(FIRST, max_initial, END))
    kinds = set()
    for _ in range(300):
        written, text = Written(), [0, 1]
        for _ in range(8):
            logits = random.normal(size=SIZE).astype(np.float32) * 2
            expected = theirs(torch.tensor([text]), torch.from_numpy(logits)[None])[0].numpy()
            found = rules.apply(logits, written)
            assert np.array_equal(found, expected)
            kinds.add((np.isinf(found[:END]).all(), np.isinf(found[FIRST:]).all()))
            token = int(random.choice(np.flatnonzero(np.isfinite(found))))
            written, text = rules.after(written, token), [*text, token]
    assert kinds == {(False, False), (True, False), (False, True)}  # every rule forbade something


def test_masks_of_a_tree_follow_each_branch():
    rules = TokenRules(*[np.ones(SIZE, bool)] * 2, TimeRules(FIRST, None, END))
    matcher, allowed = RuleMatcher(rules), np.zeros((4, SIZE), bool)
    matcher.write(allowed, [FIRST + 2, 3, FIRST + 5], [-1, 0, 1, 2])
    matcher.accept_tokens([FIRST + 2])
    lines = np.zeros((3, SIZE), bool)
    matcher.write(lines, [3, FIRST + 5], [-1, 0, 1])
    assert np.array_equal(lines, allowed[1:])
    assert matcher.writes_times
    branches = np.zeros((3, SIZE), bool)
    matcher.write(branches, [3, 4], [-1, 0, 0])  # two children of one node
    assert np.array_equal(branches[1], branches[2])


def test_windows_are_cut_at_pairs_of_times():
    one, two, three = FIRST + 3, FIRST + 5, FIRST + 9
    assert cut_at_times([1, 2], None, 100) == ([(0, 50, [1, 2])], 100)
    assert cut_at_times([FIRST, 1, two], FIRST, 100) == ([(0, 5, [FIRST, 1, two])], 100)
    assert cut_at_times([FIRST, 1], FIRST, 100) == ([(0, 50, [FIRST, 1])], 100)
    pairs = [FIRST, 1, one, one, 2, two, two]
    parts, step = cut_at_times([*pairs, 7], FIRST, 100)
    assert (parts, step) == ([(0, 3, [FIRST, 1, one]), (3, 5, [one, 2, two, two])], 10)
    parts, step = cut_at_times([*pairs, 7, three], FIRST, 100)
    assert (parts[-1], step) == ((5, 9, [two, 7, three]), 100)
    assert list(previous_tokens([[FIRST, 1, two, two], [4, 5]], FIRST)) == [FIRST, 1, two, 4, 5]
    assert compression_ratio([7] * 300, 120) > 10 > 1.5 > compression_ratio(range(100), 120)


def test_long_features_are_those_of_transformers():
    extractor = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    sound = (0.1 * np.random.default_rng(0).normal(size=500_123)).astype(np.float32)  # more than one part
    theirs = extractor(sound, sampling_rate=16_000, return_tensors="np", padding="longest", truncation=False)
    found = read_long_sound(sound, AUDIO)
    assert found.features.shape == theirs.input_features[0].shape == (80, 3125)
    assert np.abs(found.features - theirs.input_features[0]).max() < 5e-5
    assert found.seconds == 500_123 / 16_000
    assert read_long_sound(found.features, AUDIO).features is not None
    assert read_long_sound([sound[:100]], AUDIO).features.shape == (80, 100)
    sizes = {"sampling_rate": 16_000, "window": 400, "hop": 160, "mels": 80, "frames": 100}
    assert np.allclose(long_log_mel(np.zeros(40_000, np.float32), **sizes), -1.5)
    whole = resample(sound, 8_000, 16_000)  # in parts
    assert np.allclose(whole[:4_000], resample(sound[:4_000], 8_000, 16_000)[:4_000], atol=1e-6)


@pytest.mark.parametrize(
    ("audio", "error", "message"),
    [
        (None, PromptError, "received no sound"),
        ([np.zeros(9, np.float32)] * 2, UsageError, "received 2 sounds, expected one"),
        (np.zeros((80, 99), np.float32), PromptError, r"shape \[80, 99\], expected finite ones of \[80, 100 or more\]"),
        (np.broadcast_to(np.float32(0), 16_000 * 36_000), PromptError, "received 36000 s, expected at most 14400 s"),
    ],
)
def test_wrong_long_sounds_are_refused(audio, error, message):
    with pytest.raises(error, match=message) as caught:
        read_long_sound(audio, AUDIO)
    assert caught.value.hint


def test_a_file_of_hours_is_refused_before_it_is_decoded():
    data = riff(1, 1, 8, b"\x80" * 16_000 * 1000, rate=1000)
    with pytest.raises(PromptError, match="received 16000 s, expected at most 14400 s"):
        read_long_sound(data, AUDIO)


def test_a_text_with_times_begins_without_their_absence():
    assert transcript_start(SECTION, "de", None, timed=True) == [4, 3, 5]
    with pytest.raises(UsageError, match="timestamps: received true, but this bundle's target has no tokens of times"):
        TokenRules.of(dataclasses.replace(manifest(vocabulary_size=7), source=SECTION), timestamps=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timestamps": 1}, "timestamps: received 1, expected True or False"),
        ({"no_speech_threshold": "x"}, "no_speech_threshold: received 'x', expected a number or None"),
        ({"initial_prompt": 3}, "initial_prompt: received 3, expected a text"),
    ],
)
def test_wrong_options_of_a_transcript_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        LongForm(**given)


def test_subtitles():
    segment = Segment(1.5, 3723.25, " a < b --> c\n\nd ", [1], 0.0, 0.0, -0.5, 1.0, None)
    assert clock(3723.25, ".", hours=False) == "01:02:03.250"
    assert clock(59.9996, ".", hours=False) == "01:00.000"
    assert srt_block(2, segment) == "2\n00:00:01,500 --> 01:02:03,250\na < b -> c\nd\n\n"
    assert vtt_block(segment) == "00:00:01.500 --> 01:02:03.250\na &lt; b --&gt; c\nd\n\n"
    assert timed_line(segment).startswith("[00:01.500 --> 01:02:03.250] a < b")
