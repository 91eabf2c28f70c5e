"""Targets that hear: Whisper behind the hook, transcripts against transformers, smaller Whispers that draft."""

import json
import subprocess

import numpy as np
import pytest
import torch
import transformers

from scripts.examples.listener import ENGLISH, GERMAN, make_listener, speak, write_sound
from speccompile.compiler.build.shared_encoder import EncoderPair, difference
from speccompile.compiler.from_recipe import build
from speccompile.compiler.models.load import ModelFiles, load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.errors import PromptError, SpeccompileError, UsageError
from speccompile.runtime import Bundle
from tests.compile.transcripts_both import (
    check_both_servers,
    check_client,
    check_refusals,
    check_timed,
    heard_by,
    same_report,
    write_noise,
)
from tests.compile.whispers import ADJUSTED, RULES, SOUND, features_of, make_pair, make_whisper, noise
from tests.light.test_audio import riff
from tests.native.side_by_side import SideBySide
from tests.native.two_commands import STEADY

pytestmark = pytest.mark.builds(5)


def generate(model, sound, language="de", most=30):
    """Return the new tokens of transformers' greedy decoding."""
    found = model.generate(
        features_of(sound), language=language, task="transcribe", max_new_tokens=most, do_sample=False, num_beams=1
    )
    return found[0].tolist()


def test_decoders_run_behind_the_hook(tmp_path):
    make_whisper(tmp_path)
    decoder = probe(load_model(tmp_path, 48), CacheShape(1, 80, 48, source=20))  # raises where it differs
    assert {name: shape[2] for name, shape in decoder.cache_shapes().items()}["cross_value.1"] == 20


def compared(folder):
    files = [ModelFiles(folder / each, (), 120) for each in ("target", "drafter")]
    return difference(EncoderPair(*files, 48))


def test_an_encoder_is_shared_where_it_is_the_same(tmp_path):
    drafter = make_pair(tmp_path)[1]
    assert compared(tmp_path) is None
    drafter.config.activation_function = "relu"
    drafter.save_pretrained(tmp_path / "drafter")
    assert compared(tmp_path) == "their settings differ"
    with torch.no_grad():
        drafter.model.encoder.conv2.bias[3] += 1e-6
    drafter.save_pretrained(tmp_path / "drafter")
    assert compared(tmp_path) == "conv2.bias differs"
    make_whisper(tmp_path / "drafter", encoder_layers=3)
    assert compared(tmp_path) == "only one of them has layers.2.fc1.bias"


@pytest.mark.sweep("a bundle of two models; which encoders are shared is above, in the first tier")
@pytest.mark.parametrize("encoder", ["same", "other"])
def test_a_smaller_whisper_drafts(tmp_path, encoder):
    model, drafter = make_pair(tmp_path)
    if encoder == "other":
        with torch.no_grad():
            drafter.model.encoder.conv1.bias += 1e-3
        drafter.save_pretrained(tmp_path / "drafter")
    built = build(
        {
            "name": "demo", "target": {"model": str(tmp_path / "target")},
            "drafter": {"kind": "model", "model": str(tmp_path / "drafter"), "tokens": 3},
            "cache": {"max_length": 48, "prefill_chunk": 8}, "prove": {"max_new_tokens": 12},
        },
        tmp_path / "bundle",
    )  # fmt: skip
    proof = json.loads((built / "proof.json").read_text())
    assert proof["engines"][0]["transformers"]["equal"] == 3
    with Bundle.open(built) as bundle:
        read = {graph.name: graph.inputs[0].name for graph in bundle.manifest.graphs}
        assert read["encode_draft_source"] == ("encoded" if encoder == "same" else "audio")
        tokens = set()
        for number, size in enumerate((1, 2000, 5000, SOUND)):
            sound = noise(size, number)
            asked = {"audio": sound, "source_language": "de", "max_new_tokens": 30}
            ours = bundle.generate(**asked, adaptive=False)
            assert ours.token_ids == bundle.generate(**asked, autoregressive=True).token_ids == generate(model, sound)
            assert ours.token_ids[0] not in RULES["begin_suppress_tokens"]
            tokens |= {tuple(ours.token_ids)}
        assert len(tokens) >= 3
        assert not {token for each in tokens for token in each} & set(RULES["suppress_tokens"])


@pytest.mark.sweep("as the same encoder in float32, alone in its batch")
def test_an_encoder_in_int8_is_shared_by_every_row(tmp_path):
    make_pair(tmp_path)
    built = build(
        {
            "name": "demo", "target": {"model": str(tmp_path / "target")}, "decoding": "sampling",
            "drafter": {"kind": "model", "model": str(tmp_path / "drafter"), "tokens": 3},
            "precision": {"target": "int8", "drafter": "float32"}, "prove": {"max_new_tokens": 8},
            "cache": {"max_length": 48, "prefill_chunk": 8, "batch_size": 2},
        },
        tmp_path / "bundle",
    )  # fmt: skip
    rows = json.loads((built / "proof.json").read_text())["graphs"]
    assert len([each for each in rows if each["graph"] == "encode_draft_source"]) >= 3
    with Bundle.open(built) as bundle:
        sounds, asked = [noise(3000, 1), noise(SOUND, 2)], {"source_language": "de", "max_new_tokens": 20}
        alone = [bundle.generate(audio=each, **asked, autoregressive=True).token_ids for each in sounds]
        assert alone[0] != alone[1]
        for order in (1, -1):
            found = bundle.generate_batch(audio=sounds[::order], **asked, adaptive=False)
            assert [each.token_ids for each in found] == alone[::order]


TIMED = {
    "suppress_tokens": [3, 4, 28, *range(101, 108)], "max_length": 64, "prev_sot_token_id": 99,
}  # fmt: skip
"""Rules of a Whisper that writes times, 24 tokens behind the 108 others."""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Build a random Whisper that writes times, and samples."""
    folder = tmp_path_factory.mktemp("timed")
    model = make_whisper(folder / "target", 1, vocab_size=132)
    with torch.no_grad():  # so that what it writes depends on what it hears, and on the place
        for name, weight in model.named_parameters():
            weight.mul_(3 if "encoder_attn.out_proj.weight" in name else 8 if "decoder.embed_posi" in name else 1)
    for key, value in TIMED.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder / "target")
    built = build(
        {
            "name": "timed", "target": {"model": str(folder / "target")}, "decoding": "sampling",
            "drafter": {"kind": "prompt_lookup", "tokens": 3}, "cache": {"max_length": 64, "prefill_chunk": 8},
            "prove": {"max_new_tokens": 6},
        },
        folder / "bundle",
    )  # fmt: skip
    return model, built


def test_the_runtime_in_cpp_hears(timed, tmp_path, native_build, native_library, onnxruntime_library):
    both = SideBySide(timed[1], native_library, onnxruntime_library)
    asked, answers = {"source_language": "de", "max_new_tokens": 24}, set()
    for number, size in enumerate((1, 3000, SOUND)):
        for way in ({"adaptive": False}, {"autoregressive": True}):
            answers |= {tuple(both.check([], audio=noise(size, number), **asked, **way)[0].token_ids)}
        both.check([], audio=noise(size, number), **asked, temperature=0.9, seed=number, task="translate")
    assert len(answers) == 3
    heard = riff(1, 1, 16, (noise(3000, 1) * 2**14).astype("<i2").tobytes())
    (tmp_path / "a.wav").write_bytes(heard)
    both.check([], audio=heard, **asked)
    for options in (
        {"audio": noise(SOUND + 160, 0), "source_language": "de"},
        {"audio": noise(9, 0)},
        {"audio": noise(9, 0), "source_language": "xx"},
        {"audio": noise(9, 0), "source_language": "de", "task": "sing"},
        {"source": [5], "source_language": "de"},
        {"source_language": "de"},
    ):
        with pytest.raises(SpeccompileError) as expected:
            both.python.generate_batch([], **options)
        with pytest.raises(type(expected.value)) as caught:
            both.session.generate([], **options)
        assert str(caught.value) == str(expected.value)
    command = [native_build / "speccompile-native", "generate", timed[1], "--onnxruntime", onnxruntime_library]
    more = ["--audio", tmp_path / "a.wav", "--source-language", "de", "-n", "24", "--json"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["token_ids"] == both.python.generate(audio=heard, **asked).token_ids


def loud_and_quiet(size, seed):
    random = np.random.default_rng(seed)
    return (random.normal(size=size) * 0.2 * np.repeat(random.random(size // 400 + 1), 400)[:size]).astype(np.float32)


def long_form(model, sound, **options):
    """Return the tokens and times of the segments of transformers' own long form."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    padding = {"padding": "max_length", "max_length": SOUND} if len(sound) <= SOUND else {"padding": "longest"}
    features = extractor(sound, sampling_rate=16_000, return_tensors="pt", truncation=False, **padding).input_features
    found = model.generate(
        features, return_timestamps=True, language="de", task="transcribe", temperature=0.0, return_segments=True,
        max_new_tokens=24, **options,
    )  # fmt: skip
    return [(each["tokens"].tolist(), float(each["start"]), float(each["end"])) for each in found["segments"][0]]


@pytest.mark.sweep("a minute of sound; the algorithm over given windows is in tests/light/test_transcripts.py")
def test_long_sounds_are_heard_as_by_transformers(timed):
    model, built = timed
    seen = set()
    with Bundle.open(built) as bundle:
        for size, depends, own, theirs in (
            (5000, False, {}, {}), (15_000, False, {}, {}), (15_000, True, {}, {}), (5000, False, *ADJUSTED)
        ):  # fmt: skip
            sound = loud_and_quiet(size, size)
            expected = long_form(model, sound, condition_on_prev_tokens=depends, **theirs)
            asked = {"timestamps": True, "condition_on_previous_text": depends, "max_new_tokens": 24, **own}
            before = bundle._loop.sources.runs
            for how in ({"adaptive": False}, {"autoregressive": True}):
                found = bundle.transcribe(sound, "de", **asked, **how).segments
                assert [each.token_ids for each in found] == [tokens for tokens, *_ in expected]
                assert np.allclose([(each.start, each.end) for each in found], [times for _, *times in expected])
            windows = len({each.seek for each in found})
            assert bundle._loop.sources.runs - before <= 2 * windows  # once a window, whatever is asked of it
            seen |= {tuple(each.token_ids) for each in found}
        assert len(seen) > 5
        first = next(bundle.stream_transcript(sound, "de", timestamps=True, max_new_tokens=24, **own))
        assert first.token_ids == expected[0][0]


@pytest.mark.sweep("a minute of sound; the algorithm over given windows is in tests/light/test_transcripts.py")
def test_improbable_texts_are_written_again(timed):
    with Bundle.open(timed[1]) as bundle:
        sound, warm = loud_and_quiet(9000, 3), {"timestamps": True, "max_new_tokens": 24, "temperature": [0.0, 0.7]}
        again = bundle.transcribe(sound, "de", **warm, logprob_threshold=-0.01, seed=5)
        assert {each.temperature for each in again.segments} == {0.7}
        assert again.segments == bundle.transcribe(sound, "de", **warm, logprob_threshold=-0.01, seed=5).segments
        kept = bundle.transcribe(sound, "de", **warm, logprob_threshold=None, compression_ratio_threshold=None)
        assert {each.temperature for each in kept.segments} == {0.0}
        silent = bundle.transcribe(sound, "de", **warm, logprob_threshold=None, no_speech_threshold=-1.0)
        assert (silent.segments, silent.language) == ((), "de")
        with pytest.raises(UsageError, match="initial_prompt: this bundle has no tokenizer"):
            bundle.transcribe(sound, "de", initial_prompt="names")


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    """Build the listener in a batch of two."""
    folder = tmp_path_factory.mktemp("listener")
    build(
        {
            "name": "listener", "target": {"model": str(make_listener(folder / "target"))},
            "drafter": {"kind": "prompt_lookup", "tokens": 6}, "prove": {"max_new_tokens": 12},
            "cache": {"max_length": 90, "prefill_chunk": 8, "batch_size": 2},
        },
        folder / "bundle",
    )  # fmt: skip
    return folder


def test_a_listener_writes_down_what_it_hears(listener):
    phrase = ["the", "man", "sees", "the", "house", "and", "hears", "the", "child"]
    with Bundle.open(listener / "bundle") as bundle:
        said = bundle.transcribe(speak(phrase * 6), adaptive=False)
        assert (said.text, said.language, said.task) == (" ".join(phrase * 6), "en", "transcribe")
        assert said.generation.acceptance_length > 3
        assert said.generation.finish_reason == "stop"
        german = list(GERMAN[:9])
        assert bundle.transcribe(speak(german)).language == "de"
        one, other = bundle.generate_batch(
            audio=[speak(german), speak(phrase)], source_language="de", max_new_tokens=20
        )
        assert (one.text, other.text) == (" ".join(german), " ".join(phrase))
        slow = np.repeat(speak(phrase), 3)  # as if there were 48000 samples a second
        assert bundle.transcribe(slow[: 16_000 * 3]).text != " ".join(phrase)
        with pytest.raises(UsageError, match="constraint: this bundle's target hears, and has rules of its own"):
            bundle.constraint("choice", ["man"])
        with pytest.raises(PromptError, match=r"received 8\.1 s, expected at most 8 s, which the encoder hears"):
            bundle.transcribe(np.zeros(129_600, np.float32))
        with pytest.raises(UsageError, match="timestamps: received true, but this bundle's target has no tokens of ti"):
            bundle.transcribe(speak(phrase), timestamps=True)
        before = bundle._loop.sources.runs
        assert bundle.transcribe(speak(phrase[::-1])).text == " ".join(phrase[::-1])
        assert bundle._loop.sources.runs == before + 1  # once for the language and the text


def test_commands_hear(listener, cli, tmp_path):
    words = list(ENGLISH[1:7])
    write_sound(words, tmp_path / "a.wav")
    code, out, _ = cli("transcribe", listener / "bundle", tmp_path / "a.wav")
    assert (code, out) == (0, " ".join(words) + "\n")
    code, out, _ = cli("transcribe", listener / "bundle", tmp_path / "a.wav", "--json", "--task", "translate")
    assert {key: json.loads(out)[key] for key in ("text", "language", "task")} == {
        "text": " ".join(words), "language": "en", "task": "translate"
    }  # fmt: skip
    code, _, err = cli("transcribe", listener / "bundle", tmp_path / "a.wav", "--task", "sing")
    assert (code, "task: received 'sing', expected one of transcribe, translate" in err) == (2, True)
    code, _, err = cli("transcribe", listener / "bundle", tmp_path / "a.wav", "--language", "fr")
    assert (code, "--language: received 'fr', expected one of this bundle's 2 languages: de, en" in err) == (
        2,
        True,
    )
    code, _, err = cli("generate", listener / "bundle", "--source", "a")
    assert (code, "source: received one, but this bundle's target hears" in err) == (2, True)
    code, out, _ = cli("prove", listener / "bundle", "--target", listener / "target", "--json")
    assert json.loads(out)["transformers"]["equal"] == 3


def test_both_commands_transcribe(timed, listener, both, tmp_path):
    check_timed(both, timed[1], tmp_path)
    check_refusals(both, timed[1], tmp_path)
    write_sound(list(GERMAN[:9]), tmp_path / "a.wav")
    for asked in ((), ("--task", "translate", "--autoregressive"), ("--language", "en")):
        assert same_report(both, listener / "bundle", tmp_path / "a.wav", *asked, *STEADY)["segments"]
    said = both.same("transcribe", listener / "bundle", tmp_path / "a.wav", *STEADY)
    assert said.out.decode() == " ".join(GERMAN[:9]) + "\n"
    for asked, code in ((("--timestamps",), 2), (("--initial-prompt", "names"), 0)):
        assert both.same("transcribe", listener / "bundle", tmp_path / "a.wav", *asked, *STEADY).code == code


def test_sounds_are_measured(listener, both, tmp_path):
    words = list(ENGLISH[1:7]) * 4
    write_sound(words, tmp_path / "a.wav")
    (tmp_path / "sounds.jsonl").write_text('{"audio": "a.wav"}\n{"audio": "a.wav", "language": "en"}\n')
    asked = ("--prompts", tmp_path / "sounds.jsonl", "--repeats", 1, "--fixed-draft-length", "-n", 40, "--json")
    measured = tmp_path / "measured.json"
    measured.write_bytes(both.native("bench", listener / "bundle", *asked).stdout)
    for options in (asked, ("--measured", measured, "--json")):
        done = both.python("bench", listener / "bundle", *options)
        report = json.loads(done.stdout)
        assert (done.returncode, report["equal_prompts"], report["prompts"]) == (0, 2, 2)
        assert report["speculative"]["new_tokens"] == 2 * (len(words) + 1)
        assert report["speculative"]["mean_accepted"] > 2
    for line, message in (
        ('{"audio": "a.wav", "language": "fr"}', "source_language: received 'fr', expected one of this bundle's 2 la"),
        ('{"source": "a"}', "prompt 1: received a source, expected a sound"),
        ('{"audio": 3}', "line 1: received audio: 3, expected the path of a file"),
        ('{"audio": "a.wav", "language": 3}', "line 1: received language: 3, expected the name of a language"),
        ('{"audio": "a.wav", "source": "a"}', "line 1: received audio and source, expected one of them"),
    ):
        (tmp_path / "sounds.jsonl").write_text(line + "\n")
        for done in (run("bench", listener / "bundle", *asked) for run in (both.python, both.native)):
            assert (done.returncode, message in done.stderr.decode()) == (2, True)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_openais_client_hears(listener, tmp_path, native_build, onnxruntime_library, kind):
    words = list(ENGLISH[1:7])
    write_sound(words, tmp_path / "a.wav")
    with heard_by(kind, listener / "bundle", native_build, onnxruntime_library) as running:
        check_client(running.address, (tmp_path / "a.wav").read_bytes(), " ".join(words))


def test_both_servers_hear_alike(timed, tmp_path, native_build, onnxruntime_library):
    sound = write_noise(tmp_path / "a.wav", 15_000).read_bytes()
    check_both_servers(timed[1], tmp_path, sound, native_build, onnxruntime_library)
