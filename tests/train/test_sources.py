"""Training over targets with an encoder: the teacher is transformers' forward of a source and its answer."""

import json

import pytest
import torch
import yaml

from speccompile.compiler.models.load import load_model
from speccompile.drafters.model.training import ModelLearner, write_decoder
from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe
from speccompile.recipe.training import plan_training
from speccompile.train.run import Source, run_training
from speccompile.train.sources import split_sources
from speccompile.train.teacher import Teacher
from tests.compile.test_encoder_decoders import generate, make_model
from tests.compile.whispers import make_whisper

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
        learner = ModelLearner(tmp_path / f"{count}", 120, 2)
        network = learner.network
        encoders = [each.get_encoder().state_dict() for each in (model, network)]
        assert all(torch.equal(weight, encoders[1][key]) for key, weight in encoders[0].items())
        assert not any(weight.requires_grad for weight in network.get_encoder().parameters())
        assert any(weight.requires_grad for weight in network.get_decoder().parameters())
        seen = Teacher(load_model(tmp_path / "target", 48), (), START).forward(*samples())
        anchors = torch.arange(1, 3).expand(len(SOURCES), -1)
        (logits,) = learner(seen, anchors, 1)
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


def test_a_target_that_hears_is_refused(tmp_path):
    make_whisper(tmp_path / "target")
    with pytest.raises(RecipeError, match=r"train: received a section for .*which hears"):
        plan_training(write_recipe(tmp_path, tmp_path / "target"))


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
