"""Features on the disk: what the teacher reads, without the target's layers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from speccompile.errors import BuildError, UnsupportedModelError
from speccompile.recipe.training_data import feature_bytes
from speccompile.train.data import features
from speccompile.train.data.features import CachedFeatureTeacher, write_features
from speccompile.train.data.prepare import prepare
from speccompile.train.teacher import Teacher
from tests import zoo
from tests.light.train_data_example import plan, write_lines

TAPS = ("layers.0.output", "norm.output", "layers.1.input")


def make(folder, row="llama", **keys):
    """Return a plan, the target as transformers has it, and a corpus of token ids."""
    target = folder / row
    zoo.save(row, target)
    random = np.random.default_rng(0)
    rows = [{"token_ids": random.integers(0, zoo.VOCABULARY, int(random.integers(3, 40))).tolist()} for _ in range(24)]
    file = write_lines(folder / "ids.jsonl", rows)
    wanted = plan([file], vocabulary=zoo.VOCABULARY, target=target, **({"taps": TAPS} | keys))
    from transformers import AutoTokenizer

    train, _ = prepare(wanted, AutoTokenizer.from_pretrained(target), folder / "work")
    return wanted, zoo.model(row), train


@pytest.mark.parametrize("row", ["llama", "gemma2", "granite", "opt", "gpt2", "mixtral", "cohere", "qwen3"])
def test_what_is_read_is_what_the_teacher_reads(tmp_path, row):
    wanted, model, corpus = make(tmp_path, row)
    kept = CachedFeatureTeacher(
        wanted, model, corpus, write_features(wanted, model, corpus, tmp_path / "data", "train")
    )
    batch = corpus.batch(0, 1, 5)
    found, online = kept.read(batch), Teacher(model, TAPS).forward(batch.tokens, batch.attention_mask, batch.loss_mask)
    scale = online.logits.std()
    assert torch.allclose(
        found.logits[batch.attention_mask], online.logits[batch.attention_mask], atol=1e-5 * float(scale)
    )
    assert found.features.shape == online.features.shape
    assert torch.allclose(
        found.features[batch.attention_mask], online.features[batch.attention_mask], rtol=1e-5, atol=1e-5
    )
    assert found.logits.dtype == found.features.dtype == torch.float32


def test_half_the_numbers_are_half_the_size(tmp_path):
    wanted, model, corpus = make(tmp_path, precision="bfloat16")
    folder = write_features(wanted, model, corpus, tmp_path / "data", "train")
    (file,) = folder.iterdir()
    expected = feature_bytes(int(corpus.lengths.sum()), TAPS, 64, "bfloat16")
    assert expected == int(corpus.lengths.sum()) * 3 * 64 * 2
    assert expected <= file.stat().st_size < expected + 1000
    batch = corpus.batch(0, 0, 8)
    found = CachedFeatureTeacher(wanted, model, corpus, folder).read(batch)
    online = Teacher(model, TAPS).forward(batch.tokens, batch.attention_mask, batch.loss_mask)
    change = (found.features - online.features)[batch.attention_mask]
    assert 0 < change.norm() / online.features[batch.attention_mask].norm() < 2**-8


def test_final_norm_is_there_once():
    assert feature_bytes(10, ("norm.output",), 64, "float32") == feature_bytes(10, (), 64, "float32") == 10 * 64 * 4
    assert feature_bytes(10, ("layers.1.input", "layers.2.input"), 64, "bfloat16") == 10 * 3 * 64 * 2


def test_interrupted_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD", 60 * 3 * 64 * 4)
    wanted, model, corpus = make(tmp_path)
    folder = write_features(wanted, model, corpus, tmp_path / "data", "train")
    files = sorted(folder.iterdir())
    assert len(files) > 3
    stamps = [file.stat().st_mtime_ns for file in files]
    content = files[1].read_bytes()
    files[1].unlink()
    assert write_features(wanted, model, corpus, tmp_path / "data", "train") == folder
    assert [file.stat().st_mtime_ns for file in files][2:] == stamps[2:]
    assert files[1].read_bytes() == content
    batch = corpus.batch(0, 0, len(corpus))
    kept = CachedFeatureTeacher(wanted, model, corpus, folder).read(batch)
    online = Teacher(model, TAPS).forward(batch.tokens, batch.attention_mask, batch.loss_mask)
    assert torch.allclose(
        kept.features[batch.attention_mask], online.features[batch.attention_mask], rtol=1e-5, atol=1e-5
    )


def test_processes_share_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD", 60 * 3 * 64 * 4)
    wanted, model, corpus = make(tmp_path)
    folder = write_features(wanted, model, corpus, tmp_path / "data", "train", 1, 2)
    assert {int(file.stem) % 2 for file in folder.iterdir()} == {1}
    write_features(wanted, model, corpus, tmp_path / "data", "train", 0, 2)
    tokens = 0
    for file in folder.iterdir():
        with safe_open(file, framework="pt") as opened:
            tokens += opened.get_slice("hidden").get_shape()[0]
    assert tokens == corpus.lengths.sum()


def test_other_weights_are_other_features(tmp_path):
    wanted, model, corpus = make(tmp_path)
    folder = write_features(wanted, model, corpus, tmp_path / "data", "train")
    zoo.model("llama", seed=1).save_pretrained(wanted.target.folder)
    other = write_features(wanted, model, corpus, tmp_path / "data", "train")
    apart = write_features(wanted, model, corpus, tmp_path / "data", "train-apart")
    assert other != folder
    write_features(wanted, model, corpus, tmp_path / "data", "train")
    assert sorted((tmp_path / "data").iterdir()) == sorted([other, apart])


def test_too_little_room(tmp_path, monkeypatch):
    wanted, model, corpus = make(tmp_path)
    needed = feature_bytes(int(corpus.lengths.sum()), TAPS, 64, "float32")
    usage = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr(features.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        BuildError, match=r"not enough disk space for the features: received .* free, expected "
    ) as raised:
        write_features(wanted, model, corpus, tmp_path / "data", "train")
    assert "online" in raised.value.hint
    assert not list(tmp_path.glob("data/*/*"))


def test_broken_file(tmp_path):
    wanted, model, corpus = make(tmp_path)
    folder = write_features(wanted, model, corpus, tmp_path / "data", "train")
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(BuildError, match="safetensors: cannot be read"):
        CachedFeatureTeacher(wanted, model, corpus, folder).read(corpus.batch(0, 0, 2))


def test_logits_that_are_more_than_the_head(tmp_path):
    wanted, model, corpus = make(tmp_path)

    def more(module, args, options, output):
        output.logits = output.logits + options["input_ids"][..., None] if "input_ids" in options else output.logits * 2
        if options.get("attention_mask") is not None:
            output.logits = output.logits * 3
        return output

    model.register_forward_hook(more, with_kwargs=True)
    with pytest.raises(UnsupportedModelError, match="its logits are not what its head makes"):
        write_features(wanted, model, corpus, tmp_path / "data", "train")
