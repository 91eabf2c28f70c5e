"""New drafters: written in a published dialect, read by the family's own reader, and saved as they are."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.errors import CheckpointError
from tests.train import tiny_drafters
from tests.train.students import BUILT

KEPT = torch.arange(1, 120, 2)
NEW = {
    "eagle3": ("eagle3", {}),
    "eagle3, own vocabulary": ("eagle3", {"kept": KEPT}),
    "eagle3, narrow": ("eagle3", {"kept": KEPT, "sizes": {"hidden_size": 32, "heads": 2, "kv_heads": 1}}),
    "eagle3, speculators": ("eagle3", {"dialect": "speculators", "sizes": {"layers": 2}, "kept": KEPT}),
    "eagle3, first tap": ("eagle3", {"dialect": "speculators", "taps": ("layers.0.output", "layers.1.output")}),
    "eagle": ("eagle", {"sizes": {"layers": 2}}),
    "medusa": ("medusa", {}),
    "medusa, shared": ("medusa", {"sizes": {"projection": "shared", "layers": 3}, "kept": KEPT}),
    "hydra": ("hydra", {"sizes": {"layers": 2}}),
    "hydra++": ("hydra", {"sizes": {"arch": "prefix-mlp", "layers": 2}}),
    "redrafter": ("redrafter", {}),
    "redrafter sum": ("redrafter", {"sizes": {"layers": 1, "cell": "sum"}}),
    "pard2": ("pard2", {"sizes": {"mask_token": 7, "layers": 1}}),
    "p_eagle": ("p_eagle", {"kept": KEPT, "sizes": {"mask_token": 7}}),
    "model": ("model", {"sizes": {"layers": 1}}),
}
ANCHORS = torch.tensor([[1, 5, 9]])


@pytest.fixture(params=NEW)
def new(request, tmp_path):
    """Return (folder, target, kind) of a drafter that has just begun."""
    kind, asked = NEW[request.param]
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind, **asked)
    return tmp_path, model, kind


def said(student, seen):
    with torch.no_grad():
        return torch.stack(student(seen, ANCHORS.expand(len(seen.tokens), -1), 3), 2)


def test_what_is_left_says_the_same_to_the_last_bit(new):
    folder, model, kind = new
    context = tiny_drafters.context(folder, model, kind)
    first = tiny_drafters.student(context)
    seen = tiny_drafters.seen(model, first.taps)
    first.save(folder / "saved", torch.float32)
    (folder / "head").rename(folder / "begun")
    (folder / "saved").rename(folder / "head")
    again = tiny_drafters.student(tiny_drafters.context(folder, model, kind))
    assert torch.equal(said(first, seen), said(again, seen))
    begun, saved = (load_file(folder / each / "model.safetensors") for each in ("begun", "head"))
    assert begun.keys() == saved.keys()
    assert all(torch.equal(begun[name], saved[name]) and begun[name].dtype == saved[name].dtype for name in begun)
    assert json.loads((folder / "begun/config.json").read_text()) == json.loads(
        (folder / "head/config.json").read_text()
    )


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "hydra", "eagle", "p_eagle", "model"])
def test_the_same_seed_gives_the_same_numbers(kind, tmp_path):
    model = tiny_drafters.target(tmp_path)
    made = [
        tiny_drafters.begin(tmp_path, model, kind, name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    one, same, other = (load_file(each / "model.safetensors") for each in made)
    assert all(torch.equal(one[name], same[name]) for name in one)
    if kind not in ("medusa", "hydra"):  # which begin as the target's own head
        assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["medusa", "hydra"])
def test_independent_heads_begin_as_the_targets_own(kind, tmp_path):
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind)
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, kind))
    seen = tiny_drafters.seen(model, student.taps)
    for logits in said(student, seen).unbind(2):
        torch.testing.assert_close(logits, seen.logits[:, ANCHORS[0] - 1], atol=1e-5, rtol=1e-5)


def test_eagle3_begins_with_the_targets_norm_and_head(tmp_path):
    """gemma keeps one less than its norm multiplies by."""
    for row in ("llama", "gemma"):
        model = tiny_drafters.target(tmp_path / row, row)
        tiny_drafters.begin(tmp_path / row, model, "eagle3", kept=KEPT)
        tensors = load_file(tmp_path / row / "head" / "model.safetensors")
        norm = model.model.norm.weight.data + (row == "gemma")
        torch.testing.assert_close(tensors["norm.weight"], norm, rtol=1e-5, atol=1e-6)
        assert torch.equal(tensors["lm_head.weight"], model.lm_head.weight.data[KEPT])
        assert torch.equal(tensors["d2t"] + torch.arange(len(KEPT)), KEPT)
        assert tensors["t2d"].dtype == torch.bool
        assert torch.equal(tensors["t2d"].nonzero()[:, 0], KEPT)


def test_half_precision_is_written_as_such(new):
    folder, model, kind = new
    student = tiny_drafters.student(tiny_drafters.context(folder, model, kind))
    student.save(folder / "half", torch.bfloat16)
    begun, half = (load_file(folder / each / "model.safetensors") for each in ("head", "half"))
    assert begun.keys() == half.keys()
    assert {each.dtype for each in half.values() if each.is_floating_point()} == {torch.bfloat16}
    config = json.loads((folder / "half/config.json").read_text())
    assert config.get("torch_dtype", config.get("dtype")) == "bfloat16"


@pytest.mark.sweep(BUILT)
@pytest.mark.parametrize("kind", ["eagle3", "medusa", "hydra", "eagle", "p_eagle", "model"])
def test_a_new_drafter_is_compiled(kind, tmp_path):
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, kind, depth=2, **({"kept": KEPT} if kind == "eagle3" else {}))
    tiny_drafters.check_built(tmp_path, kind)


@pytest.mark.sweep("every form of a target", but=["gpt2", "eagle3-gemma2", "eagle3-phi"])
@pytest.mark.parametrize("row", ["gpt2", "qwen2", "gemma2", "phi", "gpt_neox", "mixtral"])
@pytest.mark.parametrize("kind", ["eagle3", "medusa", "hydra", "eagle", "model"])
def test_targets_of_other_forms_get_drafters(row, kind, tmp_path):
    """Begin with other names for sizes, other norms and heads with biases; the drafter says finite numbers."""
    model = tiny_drafters.target(tmp_path, row)
    tiny_drafters.begin(tmp_path, model, kind, dialect="speculators" if kind == "eagle3" else "")
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, kind))
    found = said(student, tiny_drafters.seen(model, student.taps))
    assert found.isfinite().all()
    assert found.shape[-1] == model.config.vocab_size


def test_a_language_model_has_the_targets_tokenizer_to_the_byte(tmp_path):
    model = tiny_drafters.target(tmp_path, "qwen2")
    tiny_drafters.begin(tmp_path, model, "model")
    student = tiny_drafters.student(tiny_drafters.context(tmp_path, model, "model"))
    student.save(tmp_path / "saved", torch.float32)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "target" / name).read_bytes()


def test_weights_that_are_not_there_are_not_made_up(tmp_path):
    model = tiny_drafters.target(tmp_path)
    file = tiny_drafters.begin(tmp_path, model, "model") / "model.safetensors"
    found = tiny_drafters.context(tmp_path, model, "model")
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks 1 tensors of LlamaForCausalLM, first model\.norm\.weight"):
        tiny_drafters.student(found)
