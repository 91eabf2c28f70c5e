"""Heads of drafters in GGUF files: weights and description of the folders that they were made from; refusals."""

import numpy as np
import pytest
import torch
import yaml
from transformers import LlamaConfig

from speccompile.compiler.models.load import load_model
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.weights.tensor import WeightTensor, whole
from speccompile.drafters.eagle3.drafter import Eagle3Reader
from speccompile.drafters.eagle3.taps import boundaries
from speccompile.drafters.find import find_kind, read_head
from speccompile.drafters.weights import TargetEmbeddings, draft_vocabulary, load_head, read_tensors
from speccompile.errors import CheckpointError, SpeccompileError
from speccompile.plan.head import HeadRequest, HeadTarget
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.gguf import gguf_folder
from speccompile.recipe.training import plan_training
from tests.gguf_files import save
from tests.gguf_heads import write_head
from tests.heads import dflash
from tests.heads.eagle3 import eagle3, of_norms

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=8)


def _eagle3(folder, **options):
    options = {"width": 64} | options
    return eagle3(folder, TARGET, **options)


HEADS = {
    "eagle3": ("eagle3", _eagle3),
    "eagle3 with a draft vocabulary": ("eagle3", lambda folder: _eagle3(folder, draft_size=40)),
    "eagle3 of another width": ("eagle3", lambda folder: _eagle3(folder, width=32)),
    "eagle3 with norms": (
        "eagle3",
        lambda folder: _eagle3(folder, tensors={"input_norm.weight": of_norms(TARGET)["input_norm.weight"]},
                               norm_before_fc=True, norm_before_residual=True),
    ),
    "dflash": ("dflash", lambda folder: dflash.zlab(folder, TARGET, is_causal=False)),
    "dflash2": ("dflash", lambda folder: dflash.dflash2(folder, TARGET, is_causal=False)),
    "dspark": ("dspark", lambda folder: dflash.specforge(folder, TARGET, own={"is_causal": False,
                                                                              "sample_from_anchor": True})),
}  # fmt: skip


def read(folder, kind, tmp_path):
    target = HeadTarget("some/target", vocabulary_size=96, hidden_size=64, layers=8)
    return read_head(folder, HeadRequest(kind, target, RecipeSource(tmp_path / "recipe.yaml")))


@pytest.mark.parametrize("quantized", ["F32", "Q8_0", "BF16"])
@pytest.mark.parametrize("name", HEADS)
def test_a_file_is_the_folder_that_it_was_made_from(tmp_path, name, quantized):
    kind, make = HEADS[name]
    folder = make(tmp_path / "folder")
    architecture = "eagle3" if kind == "eagle3" else "dflash"
    stored = write_head(folder, tmp_path / "head.gguf", architecture, quantized)
    described = gguf_folder(tmp_path / "head.gguf")
    assert find_kind(described) == kind
    head, expected = read(described, kind, tmp_path), read(folder, kind, tmp_path)
    assert head.dialect == "llama.cpp"
    assert boundaries(head.taps) == boundaries(expected.taps)
    for field in ("hidden_size", "vocabulary_size", "layers", "switches", "tokens", "default_tokens"):
        assert getattr(head, field) == getattr(expected, field), field
    own, theirs = read_tensors(head), read_tensors(expected)
    assert own.keys() == theirs.keys()
    for key, tensor in own.items():
        published = expected.tensors[key].name
        np.testing.assert_array_equal(tensor.numpy(), stored[published], published)
        if quantized == "F32":
            assert torch.equal(tensor, theirs[key])
    ours, other = draft_vocabulary(head), draft_vocabulary(expected)
    assert (ours is None) == (other is None)
    if ours is not None:
        assert torch.equal(ours.ids, other.ids)


def test_an_output_head_may_be_the_target_s(tmp_path):
    write_head(_eagle3(tmp_path / "folder"), tmp_path / "head.gguf", "eagle3", without=("output.weight",))
    head = read(gguf_folder(tmp_path / "head.gguf"), "eagle3", tmp_path)
    assert "lm_head.weight" not in head.tensors
    write_head(_eagle3(tmp_path / "narrow", width=32), tmp_path / "narrow.gguf", "eagle3", without=("output.weight",))
    with pytest.raises(CheckpointError, match=r"received no tensor 'lm_head.weight'"):
        read(gguf_folder(tmp_path / "narrow.gguf"), "eagle3", tmp_path)


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.rope_freqs.weight"])
def test_factors_of_frequencies_are_read(tmp_path, name):
    factors = np.array([1, 2, 4, 8], np.float32)
    write_head(_eagle3(tmp_path / "folder"), tmp_path / "head.gguf", "eagle3", tensors={name: factors})
    rope = read(gguf_folder(tmp_path / "head.gguf"), "eagle3", tmp_path).layers.rope
    assert (rope["rope_type"], rope["long_factor"]) == ("longrope", [1.0, 2.0, 4.0, 8.0])


def test_windows_are_of_the_layers_that_the_pattern_names(tmp_path):
    keys = [("attention.sliding_window", "uint32", 6), ("attention.sliding_window_pattern", "array", [True, False]),
            ("rope.dimension_sections", "array", [4, 0, 0, 0]), ("final_logit_softcapping", "float32", 30.0),
            ("logit_scale", "float32", 0.5)]  # fmt: skip
    write_head(dflash.zlab(tmp_path / "folder", TARGET), tmp_path / "head.gguf", "dflash", keys=keys)
    head = read(gguf_folder(tmp_path / "head.gguf"), "dflash", tmp_path)
    assert head.layers.windows == (6, 0)
    assert (head.switches["causal_sliding"], head.switches["sample_from_anchor"]) == (False, False)
    assert (head.switches["output_multiplier"], head.switches["final_logit_softcapping"]) == (0.5, 30.0)


ODD = np.ones((2, 32), np.float32)
IDS = np.arange(96)
REFUSED = [
    ("eagle3", {"keys": [("odd", "uint32", 1)]}, "the key 'eagle3.odd' (1)"),
    ("eagle3", {"keys": [("block_count", "uint32", 2)]}, "eagle3.block_count: received 2, expected 1"),
    ("eagle3", {"keys": [("attention.causal", "bool", False)]}, "eagle3.attention.causal: received False"),
    ("eagle3", {"keys": [("attention.sliding_window", "uint32", 8)]}, "the key 'eagle3.attention.sliding_window'"),
    ("eagle3", {"keys": [("target_layers", "array", [-1, 2, 3])]}, "eagle3.target_layers: received [-1, 2, 3]"),
    ("eagle3", {"keys": [("target_layers", "array", [2, 3, 9])]}, "eagle_aux_hidden_state_layer_ids: received"),
    ("eagle3", {"keys": [("target_layers", "array", [2, 3])]}, "received 2 taps (layers.2.input, layers.3.input)"),
    ("eagle3", {"keys": [("general.type", "string", "adapter")]}, "general.type 'adapter', expected the head"),
    ("eagle3", {"keys": [("target_hidden_size", "uint32", 32)]}, "a hidden size of 32"),
    ("eagle3", {"without": ("target_layers",)}, "eagle3.target_layers: received nothing"),
    ("eagle3", {"without": ("target_hidden_size",)}, "eagle3.target_hidden_size: received nothing"),
    ("eagle3", {"without": ("blk.0.attn_norm_2.weight",)}, "received no tensor 'layers.0.hidden_norm.weight'"),
    ("eagle3", {"tensors": {"enc.output_norm.weight": np.ones(192, np.float32)}}, "'input_norm.weight', which nothing"),
    ("eagle3", {"tensors": {"blk.1.attn_q.weight": ODD}}, "tensor 'blk.1.attn_q.weight', expected those of"),
    ("eagle3", {"tensors": {"t2d": ODD}}, "tensor 't2d', expected those of"),
    ("eagle3", {"tensors": {"d2t": ODD}}, "tensor 'd2t' of type F32, expected token ids"),
    ("eagle3", {"tensors": {"token_embd.weight": IDS}}, "tensor 'token_embd.weight' of type I64, expected numbers"),
    ("dflash", {"keys": [("hyper_connection.count", "uint32", 4)]}, "the key 'dflash.hyper_connection.count' (4)"),
    ("dflash", {"keys": [("attention.causal", "bool", True)]}, "dflash.attention.causal: received True"),
    ("dflash", {"keys": [("attention.sliding_window", "uint32", 8)]}, "sliding_window_pattern: received nothing"),
    ("dflash", {"keys": [("rope.dimension_sections", "array", [2, 1, 1])]}, "dflash.rope.dimension_sections"),
    ("dflash", {"keys": [("block_size", "uint32", 0)]}, "dflash.block_size: received 0"),
    ("dflash", {"keys": [("tokenizer.ggml.mask_token_id", "uint32", 96)]}, "mask_token_id: received 96"),
    ("dflash", {"without": ("tokenizer.ggml.mask_token_id",)}, "tokenizer.ggml.mask_token_id: received nothing"),
    ("dflash", {"without": ("fc.weight",)}, "received no tensor 'fc.weight'"),
    ("dflash", {"tensors": {"blk.0.attn_sinks.weight": ODD}}, "tensor 'blk.0.attn_sinks.weight', expected"),
    ("dflash", {"tensors": {"fc.scale": ODD}}, "tensor 'fc.scale', expected those of"),
    ("dflash", {"tensors": {"conf_proj.weight": ODD}}, "'confidence_head.proj.weight'"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_would_change_a_head_is_refused_by_name(tmp_path, kind, changes, message):
    folder = _eagle3(tmp_path / "folder") if kind == "eagle3" else dflash.zlab(tmp_path / "folder", TARGET)
    write_head(folder, tmp_path / "head.gguf", kind, **changes)
    with pytest.raises(SpeccompileError) as refused:
        read(gguf_folder(tmp_path / "head.gguf"), kind, tmp_path)
    assert message in str(refused.value)


@pytest.fixture
def plan(tmp_path):
    """Return the plan of a recipe with these sections for a small target and its head in a file."""
    save(tmp_path / "target", "llama", num_hidden_layers=6)
    write_head(_eagle3(tmp_path / "folder", draft_size=40), tmp_path / "head.gguf", "eagle3", "Q8_0")

    def made(make=make_plan, **sections):
        written = {"name": "t", "target": {"model": "target"}, "drafter": {"model": "head.gguf"}} | sections
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(written))
        return make(load_recipe(tmp_path / "recipe.yaml"))

    return made


def test_a_recipe_names_the_file(plan):
    head = plan(drafter={"model": "head.gguf", "tokens": 3}).drafter.head
    assert (head.kind, head.dialect, head.draft_vocabulary_size) == ("eagle3", "llama.cpp", 40)
    assert {file.suffix for file in head.files} == {".json", ".gguf"}


def test_codes_of_a_head_stay_where_they_are_asked_for(plan, tmp_path):
    head = plan(precision={"drafter": "stored"}).drafter.head
    assert head.precision == "stored"
    shape = CacheShape(batch_size=1, rows=16, max_length=16)
    network = load_head(Eagle3Reader(head, shape, TargetEmbeddings(lambda: load_model(tmp_path / "target", 16))), head)
    expected = read_tensors(head)
    kept = {name: weight for name, weight in network.named_parameters() if isinstance(weight, WeightTensor)}
    assert {name for name, source in head.tensors.items() if source.dtype == "Q8_0"} == kept.keys()
    for name, weight in kept.items():
        assert weight.source.codes_place["type"] == "Q8_0"
        assert torch.equal(whole(weight), expected[name]), name
    write_head(tmp_path / "folder", tmp_path / "head.gguf", "eagle3")
    with pytest.raises(SpeccompileError, match=r"precision.drafter: received 'stored', expected it for a GGUF file"):
        plan(precision={"drafter": "stored"})


@pytest.mark.parametrize(("sections", "make", "message"), [
    ({"target": {"model": "head.gguf"}, "drafter": {"kind": "none"}}, make_plan, "head.gguf: received the head of a d"),
    ({"drafter": {"model": "head.gguf", "kind": "model"}}, make_plan, "received a head of drafter.kind eagle3"),
    ({"drafter": {"kind": "eagle3", "model": "new"},
      "train": {"begin": "head.gguf", "data": {"kind": "texts", "files": ["texts.jsonl"]}}},
     plan_training, "heads in the dialect llama.cpp"),
])  # fmt: skip
def test_what_such_a_file_is_not(plan, tmp_path, sections, make, message):
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n' * 4)
    with pytest.raises(SpeccompileError) as refused:
        plan(make, **sections)
    assert message in str(refused.value)
