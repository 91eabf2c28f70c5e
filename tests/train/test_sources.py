"""Training over targets with an encoder: the teacher is transformers' forward of a source and its answer."""

import json
import wave

import numpy as np
import pytest
import torch
import yaml

from speccompile.compiler.models.load import load_model
from speccompile.drafters.model.training import ModelStudent, write_decoder
from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe
from speccompile.recipe.training import plan_training
from speccompile.train.data.documents import Sound
from speccompile.train.data.prepare import prepare_prompts
from speccompile.train.data.sounds import NUMBERS, Sounds, name_sound
from speccompile.train.run import Source, run_training
from speccompile.train.sources import split_sources
from speccompile.train.teacher import Teacher
from tests.compile.test_encoder_decoders import generate, make_model
from tests.compile.test_speech import generate as generate_transcript
from tests.compile.whispers import SOUND, features_of, make_whisper, noise

pytestmark = pytest.mark.builds(0)

START = (2, 9)
SOURCES, ANSWERS = ([5, 6, 1, 8, 2], [7], [4, 4, 9]), ([11, 12], [13, 14, 15, 16, 2], [17])


def samples():
    """Return tokens, attention mask and loss mask of the sources with their answers, padded on the right."""
    rows = [[*source, *answer] for source, answer in zip(SOURCES, ANSWERS, strict=True)]
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    places = torch.arange(width)
    lengths = torch.tensor([[len(row)] for row in rows])
    return tokens, places < lengths, (places >= torch.tensor([[len(each)] for each in SOURCES])) & (places < lengths)


def test_samples_are_split_before_their_answers():
    (sources, is_source), (tokens, real, learnt) = split_sources(*samples(), START)
    for row, (source, answer) in enumerate(zip(SOURCES, ANSWERS, strict=True)):
        assert sources[row][is_source[row]].tolist() == source
        assert tokens[row][real[row]].tolist() == [*START, *answer]
        assert tokens[row][learnt[row]].tolist() == answer


@torch.no_grad()
@pytest.mark.parametrize("name", ["bart", "m2m_100", "pegasus", "t5", "t5gemma"])
def test_the_teacher_is_transformers_over_each_source(name, tmp_path):
    changes = {"tie_word_embeddings": True, "num_decoder_layers": 2} if name == "t5" else {}
    model = make_model(name, tmp_path, **changes)
    loaded = load_model(tmp_path, 48)
    seen = Teacher(loaded, ("norm.output",), START).forward(*samples())
    for row, (source, answer) in enumerate(zip(SOURCES, ANSWERS, strict=True)):
        text = torch.tensor([[*START, *answer]])
        expected = model(input_ids=torch.tensor([source]), decoder_input_ids=text).logits[0]
        assert seen.tokens[row, : text.shape[1]].tolist() == text[0].tolist()
        atol = 1e-4 * float(expected.abs().max())
        assert torch.allclose(seen.logits[row, : text.shape[1]], expected, atol=atol)
        own = model.get_output_embeddings()(seen.features[row, : text.shape[1]])  # the feature is what the head reads
        assert torch.allclose(own, expected, atol=atol) or name == "t5gemma"  # which caps its logits afterwards
    ends = model.generation_config.eos_token_id
    start = [model.config.decoder_start_token_id or 0] if name != "t5gemma" else [1]
    assert loaded.answer(SOURCES[0], start, 20, [ends])[:20] == generate(model, SOURCES[0], max_new_tokens=20)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bart", "m2m_100", "t5", "t5gemma"])
def test_a_new_decoder_has_the_encoder_of_its_target(name, tmp_path):
    model = make_model(name, tmp_path / "target")
    number = len(model.get_decoder().layers if name != "t5" else model.get_decoder().block)
    for count in (1, number):
        write_decoder(tmp_path / f"{count}", tmp_path / "target", count)
        student = ModelStudent(tmp_path / f"{count}", 120, 2)
        network = student.network
        encoders = [each.get_encoder().state_dict() for each in (model, network)]
        assert all(torch.equal(weight, encoders[1][key]) for key, weight in encoders[0].items())
        assert not any(weight.requires_grad for weight in network.get_encoder().parameters())
        assert any(weight.requires_grad for weight in network.get_decoder().parameters())
        seen = Teacher(load_model(tmp_path / "target", 48), (), START).forward(*samples())
        anchors = torch.arange(1, 3).expand(len(SOURCES), -1)
        (logits,) = student(seen, anchors, 1)
        is_same = torch.allclose(logits, seen.logits[:, 1:3], atol=1e-4 * float(seen.logits.abs().max()))
        assert is_same == (count == number)


def write_recipe(folder, target, train=None, **keys):
    data = {"kind": "prompts", "files": str(folder / "data.jsonl"), "length": 60, "held_out": 0.2}
    (folder / "data.jsonl").write_text("".join(json.dumps({"token_ids": [5, 6 + n, 2]}) + "\n" for n in range(30)))
    section = {
        "data": data | {"answers": {"max_new_tokens": 30}}, "depth": 3,
        "schedule": {"steps": 30, "batch_size": 8, "learning_rate": 0.003},
        "evaluate": {"texts": 8, "prompts": 6, "max_new_tokens": 25},
    }  # fmt: skip
    (folder / "recipe.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "t", "target": {"model": str(target)}, "drafter": {"kind": "medusa", "model": "new"},
                "cache": {"max_length": 60}, "source": {"max_length": 30}, "train": section | (train or {}),
            }
            | keys
        )
    )  # fmt: skip
    return load_recipe(folder / "recipe.yaml", ())


@pytest.mark.parametrize(
    ("keys", "train", "message"),
    [
        ({"drafter": {"kind": "eagle3", "model": "new"}}, {}, "'eagle3' for .*an encoder, expected model or medusa"),
        ({}, {"data": {"kind": "text", "files": "data.jsonl"}}, "train.data.kind: received 'text' for"),
        ({}, {"data": {"kind": "prompts", "files": "data.jsonl", "features": "disk"}}, "train.data.features: received"),
        (
            {}, {"data": {"kind": "prompts", "files": "data.jsonl", "answers": {"by": "transformers"}}},
            "train.data.answers.by: received 'transformers' for",
        ),
    ],
)  # fmt: skip
def test_what_no_source_teaches_is_refused(keys, train, message, tmp_path):
    make_model("bart", tmp_path / "target")
    with pytest.raises(RecipeError, match=message):
        plan_training(write_recipe(tmp_path, tmp_path / "target", train, **keys))


def write_sounds(folder, count=30):
    """Write sounds of noise, and return the lines that name them."""
    lines = []
    for number in range(count):
        heard = (noise(1000 + 150 * number, number) * 2**15).clip(-(2**15), 2**15 - 1).astype("<i2")
        with wave.open(str(folder / f"{number}.wav"), "wb") as opened:
            opened.setparams((1, 2, 16_000, 0, "NONE", ""))
            opened.writeframes(heard.tobytes())
        lines.append({"audio": f"{number}.wav", "language": "en" if number % 2 else "de"})
    return lines


def sound_recipe(folder, kind, lines):
    make_whisper(folder / "target")
    recipe = write_recipe(folder, folder / "target", drafter={"kind": kind, "model": "new"}, source=None)
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return recipe


@torch.no_grad()
def test_the_teacher_is_transformers_over_each_sound(tmp_path):
    model = make_whisper(tmp_path / "target")
    lines = write_sounds(tmp_path, 3)
    plan = plan_training(sound_recipe(tmp_path, "model", lines))
    heard = [Sound((tmp_path / line["audio"]).resolve(), line["language"]) for line in lines]
    sounds, answers = Sounds(plan.target, heard), ([5], [6, 7, 8], [9, 5, 9, 9])
    rows = [[*name_sound(sound, ("en", "de")), *answer] for sound, answer in zip(heard, answers, strict=True)]
    tokens = torch.tensor([[*row, *[0] * (8 - len(row))] for row in rows])
    real = torch.arange(8) < torch.tensor([[len(row)] for row in rows])
    learnt = real & (torch.arange(8) >= NUMBERS)
    loaded = load_model(tmp_path / "target", 48)
    seen = Teacher(loaded, ("norm.output",), (), sounds).forward(tokens, real, learnt)
    for row, (line, answer) in enumerate(zip(lines, answers, strict=True)):
        start = [101, {"de": 103, "en": 102}[line["language"]], 105, 107]
        assert seen.tokens[row][seen.attention_mask[row]].tolist() == [*start, *answer]
        assert seen.tokens[row][seen.loss_mask[row]].tolist() == answer
        with wave.open(str(tmp_path / line["audio"])) as opened:
            samples = np.frombuffer(opened.readframes(SOUND), "<i2").astype(np.float32) / 2**15
        text = torch.tensor([[*start, *answer]])
        expected = model(input_features=features_of(samples), decoder_input_ids=text).logits[0]
        assert torch.allclose(seen.logits[row, : text.shape[1]], expected, atol=1e-3 * float(expected.abs().max()))
        theirs = generate_transcript(model, samples, language=line["language"])
        assert loaded.answer(sounds.hear([rows[row]])[0], start, 20, [100])[:20] == theirs[:20]
    write_decoder(tmp_path / "small", tmp_path / "target", 2)
    (logits,) = ModelStudent(tmp_path / "small", 120, 2)(seen, torch.arange(1, 3).expand(3, -1), 1)
    assert torch.allclose(logits, seen.logits[:, 1:3], atol=1e-4 * float(seen.logits.abs().max()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"audio": "none.wav", "language": "de"}, "none.wav, which is no file, expected the path of a sound's file"),
        ({"audio": "0.wav"}, "received no language, expected one of the target's: de, en"),
        ({"audio": "0.wav", "language": "fr"}, "received the language fr, expected one of the target's: de, en"),
        ({"token_ids": [5]}, "received a text, expected a sound, as this target reads"),
        ({"audio": 5}, "received int under 'audio', expected text"),
    ],
)
def test_lines_that_name_no_sound_are_refused(line, message, tmp_path):
    write_sounds(tmp_path, 1)
    plan = plan_training(sound_recipe(tmp_path, "medusa", [line]))
    with pytest.raises(RecipeError, match=message):
        prepare_prompts(plan, None, tmp_path / "work")


@pytest.mark.sweep("trainings with two builds; their parts are above")
@pytest.mark.builds(4)
@pytest.mark.parametrize("kind", ["medusa", "model"])
def test_what_is_trained_from_sounds_drafts_as_its_training_says(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = sound_recipe(tmp_path, kind, write_sounds(tmp_path))
    plan = plan_training(written)
    report = run_training(plan, Source.of(written, (), plan))
    assert report.best["simulated"] == report.best["compiled"] > 1.2


@pytest.mark.sweep("trainings with two builds; their parts are above, and heads are built in tests/compile")
@pytest.mark.builds(4)
@pytest.mark.parametrize("kind", ["medusa", "model"])
def test_what_is_trained_drafts_as_its_training_says(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model("bart", tmp_path / "target")
    written = write_recipe(tmp_path, tmp_path / "target", drafter={"kind": kind, "model": "new"})
    plan = plan_training(written)
    assert plan.begin is None
    report = run_training(plan, Source.of(written, (), plan))
    assert report.best["simulated"] == report.best["compiled"] > 1.5
