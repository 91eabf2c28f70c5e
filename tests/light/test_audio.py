"""Sounds: WAV files, resampling, log-mel features against transformers', and what is refused."""

import dataclasses
import json
import struct
import tracemalloc
import wave

import numpy as np
import pytest
import transformers

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.source_section import source_problems
from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.contract import ENCODE_DRAFT_SOURCE, ENCODE_SOURCE, Graph, Tensor
from speccompile.errors import (
    BundleError,
    CheckpointError,
    PromptError,
    RecipeError,
    UnsupportedModelError,
    UsageError,
)
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime.audio import resample as resampling
from speccompile.runtime.audio.mel import log_mel, mel_filters
from speccompile.runtime.audio.reader import read_sounds, transcript_start
from speccompile.runtime.audio.resample import resample
from speccompile.runtime.audio.rules import RuleMatcher, TokenRules, Written
from speccompile.runtime.audio.sound_files import parse_sound, read_sound
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.sources import resolve_sources, source_tokens
from tests.light.bundle_example import manifest

AUDIO = {
    "sampling_rate": 16_000, "window": 400, "hop": 160, "mels": 80, "frames": 100, "tasks": {"transcribe": 5},
    "no_timestamps": 6, "suppressed": [1, 2], "begin_suppressed": [3], "prompt": [],
    "max_initial_timestamp": None, "previous": None,
}  # fmt: skip
SECTION = {
    "max_length": 50, "start_token_id": 4, "forced_bos_token_id": None, "languages": {"en": 2, "de": 3},
    "language_is_start": False, "audio": AUDIO,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "is_encoder_decoder": True, "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 4, "encoder_layers": 3, "decoder_layers": 2, "max_source_positions": 50, "max_target_positions": 32,
    "num_mel_bins": 8, "decoder_start_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(("mels", "seconds"), [(80, 30), (128, 30), (16, 3)])
def test_features_are_those_of_transformers(mels, seconds):
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=seconds)
    assert np.abs(mel_filters(16_000, 400, mels) - extractor.mel_filters).max() < 1e-8
    random, whole = np.random.default_rng(0), 16_000 * seconds
    for size in (1, whole // 3, whole + 5):
        sound = (0.1 * random.normal(size=size)).astype(np.float32)
        ours = log_mel(sound, sampling_rate=16_000, window=400, hop=160, mels=mels, frames=100 * seconds)
        theirs = extractor(sound, sampling_rate=16_000, return_tensors="np").input_features[0]
        assert np.abs(ours - theirs).max() < 5e-5
    silence = log_mel(np.zeros(9, np.float32), sampling_rate=16_000, window=400, hop=160, mels=mels, frames=100)
    assert np.allclose(silence, -1.5)


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000])
def test_a_tone_stays_one_at_another_rate(rate):
    times = np.arange(2 * rate) / rate
    found = resample(np.sin(2 * np.pi * 440 * times).astype(np.float32), rate, 16_000)
    assert found.shape == (32_000,)
    expected = np.sin(2 * np.pi * 440 * np.arange(32_000) / 16_000)
    assert np.abs(found - expected)[200:-200].max() < 1e-3
    high = resample(np.sin(2 * np.pi * 11_000 * np.arange(48_000) / 48_000).astype(np.float32), 48_000, 16_000)
    assert np.abs(high)[200:-200].max() < 0.02  # above 8000 Hz nothing is left


@pytest.mark.parametrize("rate", [8_000, 44_100, 96_000])
def test_weights_are_the_same_with_a_table_and_without_one(rate, monkeypatch):
    sound = np.random.default_rng(rate).standard_normal(5_000).astype(np.float32)
    kept = resample(sound, rate, 16_000)
    monkeypatch.setattr(resampling, "_LARGEST_TABLE", 0)
    assert np.abs(resample(sound, rate, 16_000) - kept).max() < 1e-5


@pytest.mark.parametrize("rate", [44_101, 767_999])
def test_a_rate_without_a_common_divisor_takes_little_memory(rate):
    """Resample without a table of all weights, which would have 16000 * rate numbers."""
    times = np.arange(rate // 20) / rate
    tracemalloc.start()
    found = resample(np.sin(2 * np.pi * 440 * times).astype(np.float32), rate, 16_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = np.sin(2 * np.pi * 440 * np.arange(len(found)) / 16_000)
    assert np.abs(found - expected)[100:-100].max() < 5e-3
    assert peak < 100e6


def riff(kind, channels, bits, data, rate=16_000, more=b""):
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * block, block, bits) + more
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


OTHER_BLOCK = riff(1, 1, 16, b"ab").replace(b"\2\0\x10\0", b"\7\0\x10\0")
"""A file whose samples have another number of bytes than its format says."""

VALUES = np.array([[0.5, -0.25], [-1.0, 0.75]])
FORMS = [
    (1, 8, (VALUES * 128 + 128).astype(np.uint8).tobytes(), b""),
    (1, 16, (VALUES * 2**15).astype("<i2").tobytes(), b""),
    (1, 24, b"".join(int(v * 2**23).to_bytes(3, "little", signed=True) for v in VALUES.ravel()), b""),
    (1, 32, (VALUES * 2**31).astype("<i4").tobytes(), b""),
    (3, 32, VALUES.astype("<f4").tobytes(), b""),
    (3, 64, VALUES.astype("<f8").tobytes(), b""),
    (0xFFFE, 16, (VALUES * 2**15).astype("<i2").tobytes(), struct.pack("<HHIH14x", 22, 16, 3, 1)),
]


@pytest.mark.parametrize(("kind", "bits", "data", "more"), FORMS)
def test_samples_of_every_form_are_read(kind, bits, data, more):
    found = parse_sound(riff(kind, 2, bits, data, more=more), "a")
    assert (found.samples.tolist(), found.rate) == ([0.125, -0.125], 16_000)  # the mean of two channels


def test_a_file_of_the_standard_library_is_read(tmp_path):
    with wave.open(str(tmp_path / "a.wav"), "wb") as opened:
        opened.setparams((1, 2, 8_000, 0, "NONE", ""))
        opened.writeframes(np.array([0, 16_384], "<i2").tobytes())
    assert read_sound(tmp_path / "a.wav").samples.tolist() == [0.0, 0.5]


def test_a_file_that_was_written_to_a_pipe_is_read():
    whole = riff(1, 1, 16, bytes(40))
    piped = whole[:-44] + struct.pack("<I", 0xFFFFFFFF) + whole[-40:]  # as ffmpeg does
    assert len(parse_sound(piped, "a.wav").samples) == 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a WAV, FLAC, Ogg or MP3 file, got an empty file"),
        (b"FORM" + bytes(20), "got AIFF"),
        (b"\xff\xf1" + bytes(20), "got a file that begins with b'.xff.xf1"),
        (b"\0\0\0\x18ftypM4A ", "got an MP4 or M4A file"),
        (b"RIFF\0\0\0\0WAVE", "is damaged: its format has 0 bytes, expected 16 or more"),
        (riff(1, 1, 16, b"ab")[:-10], "is damaged: none of its 48 bytes are said to be samples"),
        (riff(1, 1, 16, b""), "the WAV file has no samples"),
        (riff(1, 1, 12, b"ab"), "received samples of format 1 with 12 bits"),
        (riff(6, 1, 8, b"ab"), "received samples of format 6 with 8 bits"),
        (riff(2, 1, 4, b"ab"), "received samples of format 2 with 4 bits"),
        (riff(1, 0, 16, b"ab"), "is damaged: 0 channels of 16 bits, expected 1 or more, of 8 bits or more"),
        (riff(1, 1, 16, b"ab", rate=0), "is damaged: 0 samples a second, expected 1000 to 768000"),
        (riff(1, 1, 8, bytes(7_000), rate=999), "is damaged: 999 samples a second, expected 1000 to 768000"),
        (OTHER_BLOCK, "is damaged: 7 bytes for 1 channels of 16 bits, expected 2"),
        (riff(3, 1, 64, struct.pack("<d", 1e300)), "some samples are no finite numbers"),
        (riff(3, 2, 32, struct.pack("<ff", 3e38, 3e38)), "some samples are no finite numbers"),
        (riff(3, 1, 32, struct.pack("<f", float("nan"))), "some samples are no finite numbers"),
        (riff(1, 1, 16, bytes(40))[:-8], "received 32 of 40 bytes of samples: it is cut off"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_sound_is_refused(data, message):
    with pytest.raises(PromptError, match=message) as caught:
        parse_sound(data, "a.mp3")
    assert caught.value.hint


def test_sounds_come_in_every_form(tmp_path):
    samples = np.linspace(-0.5, 0.5, 800, dtype=np.float32)
    (tmp_path / "a.wav").write_bytes(riff(3, 1, 32, samples.tobytes()))
    features = read_sounds(samples, AUDIO)[0]
    forms = [str(tmp_path / "a.wav"), tmp_path / "a.wav", (tmp_path / "a.wav").read_bytes(), features]
    for found in read_sounds(forms, AUDIO):
        assert np.array_equal(found, features)
    assert features.shape == (80, 100)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (None, "received no sound, expected one"),
        ([], "received no sounds"),
        ("missing.wav", "missing.wav: cannot be read: No such file"),
        (np.zeros(16_160, np.float32), r"received 1\.0 s, expected at most 1 s"),
        (np.zeros(0, np.float32), "received no samples"),
        (np.full(4, np.nan, np.float32), "samples that are no finite numbers"),
        (np.full(4, -1e30), r"received samples of up to 1e\+30, expected them in \[-1, 1\]"),
        (np.full(4, 1e300), r"received samples of up to inf, expected them in \[-1, 1\]"),
        (np.zeros(9, np.int16), r"received array int16 \[9\], expected the path of a sound's file"),
        (7, "received int, expected the path"),
        (np.zeros((80, 99), np.float32), r"received features of shape \[80, 99\], expected finite ones of \[80, 100\]"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_wrong_sounds_are_refused(audio, message):
    with pytest.raises(PromptError, match=message) as caught:
        read_sounds(audio, AUDIO)
    assert caught.value.hint


def test_a_transcript_begins_with_language_and_task():
    assert transcript_start(SECTION, "de", None) == [4, 3, 5, 6]
    alone = SECTION | {"languages": {}, "audio": AUDIO | {"prompt": [6]}}
    assert transcript_start(alone, None, None) == [4, 6]
    with pytest.raises(UsageError, match="received 'translate', but this bundle's target only transcribes"):
        transcript_start(alone, None, "translate")
    with pytest.raises(UsageError, match="received 'sing', expected one of transcribe"):
        transcript_start(SECTION, "de", "sing")


def resolve(section=SECTION, **options):
    about = dataclasses.replace(manifest(vocabulary_size=9, max_length=40), source=section)
    return resolve_sources((), GenerationOptions(**options), about, None)


def test_options_of_texts_and_sounds_are_kept_apart():
    sound = np.zeros(9, np.float32)
    assert resolve(audio=[sound, sound], source_language="en").prompts == [[4, 2, 5, 6]] * 2
    for options, message in (
        ({"source": "a"}, "source: received one, but this bundle's target hears"),
        ({"audio": sound}, "source_language: received none, expected the language that is spoken"),
        ({"audio": sound, "source_language": "fr"}, "source_language: received 'fr', expected one of"),
        ({"audio": sound, "target_language": "en"}, "writes what is spoken, or English"),
    ):
        with pytest.raises(UsageError, match=message):
            resolve(**options)
    texts = {name: value for name, value in SECTION.items() if name != "audio"}
    for options, message in (({"audio": sound}, "audio: received a sound, but"), ({"task": "translate"}, "task: rec")):
        with pytest.raises(UsageError, match=message):
            resolve(texts, source=[5], **options)
    with pytest.raises(UsageError, match="received a text, but this bundle's target hears"):
        source_tokens("a", None, dataclasses.replace(manifest(), source=SECTION), None)


def test_rules_are_masks_of_every_node():
    rules = TokenRules.of(dataclasses.replace(manifest(vocabulary_size=7), source=SECTION))
    matcher, allowed = RuleMatcher(rules), np.zeros((3, 7), bool)
    matcher.write(allowed, [5, 6])
    assert (~allowed).nonzero()[1].tolist() == [1, 2, 3, 1, 2, 1, 2]
    assert matcher.accept_tokens([5]) == 1
    matcher.write(allowed, [])
    assert (~allowed).nonzero()[1].tolist() == [1, 2] * 3
    assert rules.apply(np.zeros(7, np.float32), Written()).argmin() == 1
    assert TokenRules.of(manifest()) is None


def test_facts_of_a_whisper(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "whisper", **WHISPER)
    rules = {"lang_to_id": {"<|en|>": 3}, "task_to_id": {"transcribe": 4}, "suppress_tokens": [5]}
    (folder / "generation_config.json").write_text(json.dumps(rules))
    _, facts = read_checkpoint(folder)
    assert (facts.positions, facts.layers, facts.source.positions, facts.source.start) == (32, 2, 50, 2)
    audio = facts.source.audio
    assert (audio.sampling_rate, audio.window, audio.hop, audio.mels, audio.frames) == (16_000, 400, 160, 8, 100)
    assert (facts.source.languages, audio.tasks, audio.suppressed) == ({"en": 3}, {"transcribe": 4}, (5,))
    (folder / "processor_config.json").write_text(json.dumps({"feature_extractor": {"hop_length": 80}}))
    assert read_checkpoint(folder)[1].source.audio.hop == 80
    for name, content, error, message in (
        ("preprocessor_config.json", {"dither": 0.1}, UnsupportedModelError, r"received dither: 0\.1, expected 0\.0"),
        ("preprocessor_config.json", {"feature_size": 9}, CheckpointError, "feature_size: 9"),
        ("preprocessor_config.json", {"n_fft": "x"}, CheckpointError, "n_fft: 'x'"),
        ("generation_config.json", {"suppress_tokens": 3}, CheckpointError, "suppress_tokens: 3"),
        ("generation_config.json", {"suppress_tokens": ["a"]}, CheckpointError, "suppress_tokens: 'a'"),
        ("generation_config.json", {"lang_to_id": [1]}, CheckpointError, r"lang_to_id: \[1\]"),
        ("generation_config.json", {"forced_decoder_ids": [[2, 3]]}, CheckpointError, "forced_decoder_ids"),
    ):
        for file in ("preprocessor_config.json", "generation_config.json"):
            (folder / file).write_text(json.dumps(content if file == name else {}))
        with pytest.raises(error, match=message):
            read_checkpoint(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": {"max_length": 50}}, "source: received a section for 'whisper', which hears"),
        ({"drafter": {"kind": "prompt_lookup", "over": "source"}}, r"drafter\.over: received 'source' for 'whisper'"),
        ({"constraints": False}, "constraints: received false for 'whisper', which hears"),
        ({"drafter": {"kind": "model", "model": "other"}}, "received 'other', which hears 8 mel bands and 80 frames"),
        ({"drafter": {"kind": "model", "model": "bart"}}, "received 'bart' for 'whisper', which hears, expected anoth"),
    ],
)
def test_what_targets_that_hear_lack_is_refused(tmp_path, make_checkpoint, keys, message):
    make_checkpoint(tmp_path / "whisper", **WHISPER)
    make_checkpoint(tmp_path / "other", **WHISPER | {"max_source_positions": 40})
    make_checkpoint(tmp_path / "bart", **WHISPER | {"model_type": "bart"})
    path = tmp_path / "recipe.yaml"
    plain = {"name": "demo", "target": {"model": "whisper"}, "drafter": {"kind": "none"}}
    path.write_text(json.dumps(plain))
    plan = make_plan(load_recipe(path))
    assert (plan.constraints, plan.decoding, plan.source.max_length) == (True, "greedy", 50)
    path.write_text(json.dumps(plain | keys))
    with pytest.raises(RecipeError, match=message) as caught:
        make_plan(load_recipe(path))
    assert caught.value.hint


def encoder(frames=100, name="audio"):
    state = Tensor("target.cross_key.0", "float32", (1, 2, 50, 4), "target.cross_key.0", "state")
    audio = Tensor(name, "float32", (1, 80, frames), name, "io")
    return {ENCODE_SOURCE: Graph(ENCODE_SOURCE, (audio, state), (state,))}


def test_a_manifest_says_what_its_encoder_hears():
    written = dataclasses.replace(manifest(), source=SECTION)
    assert Manifest.from_json(json.loads(json.dumps(written.to_json()))) == written
    assert list(source_problems(SECTION, encoder(), 7)) == []
    assert "expected ids below 6" in next(source_problems(SECTION, encoder(), 6))
    assert "source.audio 80 x 100" in next(source_problems(SECTION, encoder(90), 7))
    assert "reads source, expected audio" in next(source_problems(SECTION, encoder(name="source"), 7))
    assert "60 rows of 100 frames" in next(source_problems(SECTION | {"max_length": 60}, encoder(), 7))


def test_a_drafter_reads_the_states_that_an_encoder_writes():
    (first,) = encoder().values()
    states, its = Tensor("encoded", "float32", (1, 50, 6), "encoded", "link"), first.inputs[1]
    graphs = {
        ENCODE_SOURCE: dataclasses.replace(first, outputs=(states, its)),
        ENCODE_DRAFT_SOURCE: Graph(ENCODE_DRAFT_SOURCE, (states, its), (its,)),
    }
    assert list(source_problems(SECTION, graphs, 7)) == []
    alone = next(source_problems(SECTION, graphs | encoder(), 7))
    assert "reads encoded [1, 50, 6], but 'encode_source' writes nothing else" in alone
    short = dataclasses.replace(states, shape=(1, 49, 6))
    graphs = {name: Graph(name, (short, its), (short, its)) for name in (ENCODE_SOURCE, ENCODE_DRAFT_SOURCE)}
    assert "graph 'encode_source': reads encoded" in next(source_problems(SECTION, graphs, 7))
    graphs[ENCODE_SOURCE] = Graph(ENCODE_SOURCE, first.inputs, (short, its))
    assert "49 rows, source.max_length is 50" in next(source_problems(SECTION, graphs, 7))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hop": 0}, "audio: hop: expected a number from 1 on, got 0"),
        ({"tasks": {"a": "b"}}, "audio: tasks: expected token ids"),
        ({"suppressed": [True]}, "audio: suppressed: expected token ids"),
        ({"no_timestamps": "x"}, "audio: no_timestamps: expected token ids"),
        ({"more": 1}, "expected what a target hears and writes, got begin"),
    ],
)
def test_a_wrong_section_is_named(changed, message):
    data = manifest().to_json() | {"source": SECTION | {"audio": AUDIO | changed}}
    with pytest.raises(BundleError, match=message):
        Manifest.from_json(data)
