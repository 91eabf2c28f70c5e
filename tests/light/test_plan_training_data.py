"""The data of a training, looked at before any work: which files they are, their kind, their tokens, the template."""

import json
import shutil
from pathlib import Path

import pytest

from speccompile.errors import SpeccompileError
from speccompile.recipe import load_recipe
from speccompile.recipe.training import plan_training
from speccompile.recipe.training_files import find_files
from tests.light.conftest import TRAINED as SIZES

MARKED = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"


@pytest.mark.parametrize("name", ["docs", "some/docs"])
def test_files_are_looked_for_beside_the_recipe_alone(written, planned, name, tmp_path, monkeypatch):
    (tmp_path / "elsewhere" / name).mkdir(parents=True)
    (tmp_path / "elsewhere" / name / "a.md").write_text("if else\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "docs")
    if name == "docs":
        with pytest.raises(SpeccompileError, match=rf"'{tmp_path}/docs': nothing lies there"):
            plan_training(written(data={"files": name}))
    else:  # which may be a data set of the Hub
        assert find_files(planned(data={"files": name, "kind": "text"}).data.files, "text").hub == name


def test_a_folder_in_a_folder_is_no_data_set_of_the_hub(written, tmp_path, monkeypatch):
    """Refuse a missing relative folder, also in a recipe that is named from its own folder."""
    shutil.copytree(tmp_path / "docs", tmp_path / "some/docs")
    written(data={"files": "some/docs"})
    monkeypatch.chdir(tmp_path)
    plan = plan_training(load_recipe(Path("recipe.yaml")))
    assert find_files(plan.data.files, "text").paths == (tmp_path / "some/docs/a.md",)


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path.name


def test_data_whose_tokens_are_not_the_targets_is_refused(planned, refused, tmp_path, make_checkpoint):
    name = lines(tmp_path / "ids.jsonl", {"token_ids": [1, 2]}, {"token_ids": [3, 8]})
    found = refused(data={"files": name, "kind": "text"})
    assert "token 8 in" in found
    assert "line 2, expected ids from 0 to 7" in found
    make_checkpoint(tmp_path / "mute", words=None, **SIZES)
    text = lines(tmp_path / "text.jsonl", {"text": "def"})
    assert "but the target has no tokenizer.json" in refused("target.model=mute", data={"files": text})
    table = lines(tmp_path / "table.json", {"token_ids": [1, 2]})  # which is read with the data
    assert planned("target.model=mute", data={"files": table, "kind": "text"}).data.kind == "text"


@pytest.mark.parametrize("line", ['{"token_ids": 5}', "[" * 100_000, '{"token_ids": {"a": 1}}'])
def test_rows_that_are_none_are_left_to_the_reading(planned, tmp_path, line):
    (tmp_path / "odd.jsonl").write_text(f"{line}\n")
    assert planned(data={"files": "odd.jsonl", "kind": "text"}).data.kind == "text"


def test_conversations_need_a_template_that_marks_answers(planned, refused, tmp_path):
    name = lines(tmp_path / "c.jsonl", {"messages": [{"role": "user", "content": "if"}]})
    assert "received no chat template" in refused(data={"files": name})
    template = tmp_path / "target" / "chat_template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert "a chat template without an answer mask" in refused(data={"files": name})
    assert planned(data={"files": name, "answers": "bundle"}).data.answers == "bundle"
    (tmp_path / "marked.jinja").write_text(MARKED)
    assert planned(data={"files": name, "template": "marked.jinja"}).data.template == tmp_path / "marked.jinja"
    (tmp_path / "marked.jinja").write_bytes(b"\xff" + MARKED.encode())
    assert "a file that is no UTF-8 in" in refused(data={"files": name, "template": "marked.jinja"})
    template.unlink()
    (tmp_path / "target" / "tokenizer_config.json").write_text(json.dumps({"chat_template": MARKED}))
    assert planned(data={"files": name}).data.kind == "conversations"


def test_the_kind_of_records_is_told_by_their_keys(planned, refused, tmp_path):
    for record, kind in (({"prompt": "if"}, "prompts"), ({"text": "if"}, "text")):
        assert planned(data={"files": lines(tmp_path / "r.jsonl", record)}).data.kind == kind
    for record in ({"x": 1}, {"turns": ["if"]}):  # questions of a benchmark are none of them
        assert "train.data.kind: received nothing" in refused(data={"files": lines(tmp_path / "r.jsonl", record)})
    (tmp_path / "r.jsonl").write_text('{"prompt": "if"}\n', encoding="utf-8-sig")
    assert planned(data={"files": "r.jsonl"}).data.kind == "prompts"


@pytest.mark.parametrize(("precision", "each"), [("float32", 4), ("bfloat16", 2)])
@pytest.mark.parametrize(("kind", "taps"), [("medusa", 1), ("eagle3", 4)])
def test_the_size_of_features_on_the_disk_is_said(planned, precision, each, kind, taps):
    """Count the taps, and the final norm once."""
    plan = planned(f"train.schedule.precision={precision}", kind=kind, data={"files": "docs", "features": "disk"})
    assert f"take {taps * each * SIZES['hidden_size'] / 1024:.3g} KiB a token" in "".join(plan.notes)


def test_of_a_text_so_many_passages_are_answered(planned):
    answered = planned("train.data.answers=bundle")
    assert answered.data.prompts is not None, "there are as many as there are words"
    assert answered.data.prompts > 1
    assert planned("train.data.answers={by: bundle, prompts: 7}").data.prompts == 7
    assert planned().data.prompts is None
