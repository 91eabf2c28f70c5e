"""Records of inputs: a stage's key has every field of its record, and the record has no other part of the plan."""

import dataclasses
import shutil
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler.build import (
    cached_steps,
    calibration,
    distribution_proof,
    lowered,
    lowered_proof,
    modules,
    quality,
    token_proof,
    traced_graphs,
)  # fmt: skip
from speccompile.compiler.build.cache_key import FileContents, GraphFiles, cache_key
from speccompile.compiler.build.inputs import open_plan
from speccompile.compiler.models.load import ModelFiles
from speccompile.contract import Graph
from speccompile.drafters.context import DraftInputs
from speccompile.drafters.token_map import Tokenizer
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import DrafterPlan, RetrievalPlan
from speccompile.recipe import load_recipe, make_plan
from speccompile.tree import Tree
from tests import adapters, gguf_files, zoo
from tests.compile.tiny_bundles import noisy, save
from tests.heads.every import HEADS

RECORDS = [
    cached_steps.WrittenTensors, modules.ProbeInputs, modules.VerifyInputs, DraftInputs,
    traced_graphs.EagerProofInputs, calibration.CalibrationInputs, lowered.LoweredGraphInputs,
    lowered_proof.WeightProofInputs, lowered_proof.LoweredProofInputs, token_proof.GenerationInputs,
    token_proof.SpeculationInputs, token_proof.TransformersInputs, token_proof.HeadProbeInputs, quality.MeasuredInputs,
    distribution_proof.SmallProofInputs, distribution_proof.SampleInputs,
]  # fmt: skip
"""Records of which keys of the build cache are made."""


class Examples:
    """Values of any type of a record's fields, by the type alone, over files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, text: str) -> Path:
        folder = self.folder / text
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text(text)
        return folder

    def of(self, kind: Any, text: str = "one") -> Any:
        """Return an example of a type; another text gives another one, of the same type."""
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        known: dict[Any, Any] = {
            int: len(text), float: len(text) / 4, bool: text == "one", str: text, Any: text,
            Path: Path("file"), Tree: Tree((-1,) + (0,) * len(text)),
        }  # fmt: skip
        if kind in known:
            return known[kind]
        if kind in (ModelFiles, HeadPlan, RetrievalPlan, Tokenizer):
            return self.record(kind, text, folder=self.file(text))
        if kind is DrafterPlan:
            return self.record(kind, text, models=())  # which come as files
        if kind in (GraphFiles, FileContents):
            return kind(self.file(text), ("file",))
        if dataclasses.is_dataclass(kind):
            return self.record(kind, text)
        if origin in (tuple, list, Sequence):
            return (tuple if origin is Sequence else origin)([self.of(inner[0], text)])
        if origin in (Mapping, dict):
            return {"key": self.of(inner[1], text)}
        assert origin in (typing.Union, types.UnionType), kind
        return self.of(inner[0], text)

    def record(self, kind: Any, text: str, **given: Any) -> Any:
        types = typing.get_type_hints(kind)
        names = (each.name for each in dataclasses.fields(kind) if each.name not in given)
        return kind(**{name: self.of(types[name], text) for name in names}, **given)


def changed(record: Any, examples: Examples) -> Iterator[tuple[str, Any]]:
    """Yield the record with one value changed, at any depth: (which, the record)."""
    for each in dataclasses.fields(record):
        value, kind = getattr(record, each.name), typing.get_type_hints(type(record))[each.name]
        if (type(record), each.name) in ((RetrievalPlan, "folder"), (DrafterPlan, "models")):
            continue  # the hash of an index's header covers its content; models come as files
        if each.name == "folder":
            yield "content", dataclasses.replace(record, folder=examples.file("three"))
        elif each.name == "files":
            yield "files", dataclasses.replace(record, files=())
        elif dataclasses.is_dataclass(value) and not isinstance(value, Graph | Tree):
            inner = changed(value, examples)
            yield from ((f"{each.name}.{name}", dataclasses.replace(record, **{each.name: one})) for name, one in inner)
        else:
            yield each.name, dataclasses.replace(record, **{each.name: examples.of(kind, "three")})


@pytest.fixture
def examples(tmp_path, monkeypatch) -> Examples:
    monkeypatch.setattr("speccompile.compiler.build.cache_key.weights_of", lambda _: ["file"])
    monkeypatch.setattr("speccompile.compiler.build.cache_key.TOKENIZER", "file")
    return Examples(tmp_path)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_value_of_a_record_is_in_its_key(kind, examples):
    record = examples.of(kind)
    assert cache_key(record) == cache_key(examples.of(kind))
    found = {name: cache_key(one) for name, one in changed(record, examples)}
    assert {name for name, key in found.items() if key == cache_key(record)} == set()
    assert len(found) >= len(dataclasses.fields(kind))


def test_a_path_is_no_content():
    with pytest.raises(TypeError, match=r"received PosixPath\('file'\) among a stage's inputs, expected values or"):
        cache_key({"key": Path("file")})


RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 2}
cache: {max_length: 96, prefill_chunk: 16}
"""
HEAD = "{kind: eagle3, model: eagle3, tokens: 2}"
RTX = "{backend: tensorrt, defer: true, compute_capability: '8.9', precision: {target: float16, drafter: float16}}"
BILD = "verify={method: bild, fallback: 0.01, rollback: 5.0}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """Return a target, two models and a head that draft for it, and a recipe of the first model."""
    folder = tmp_path_factory.mktemp("pair")
    save(zoo.model("llama"), folder / "target")
    for name, noise in (("drafter", 0.05), ("other", 0.1)):
        save(noisy("llama", noise), folder / name)
    HEADS["eagle3"](folder / "eagle3", zoo.model("llama").config)
    (folder / "prompts.jsonl").write_text('{"token_ids": [5, 6, 7]}\n')
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def keys(folder: Path, *settings: str) -> dict[str, Any]:
    """Return keys of the two traces of a recipe."""
    traced = open_plan(make_plan(load_recipe(folder, settings))).trace
    return {"draft": cache_key(traced.draft), "verify": cache_key(traced.verify)}


@pytest.mark.parametrize("drafter", ["drafter.tokens=2", f"drafter={HEAD}"])
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("name=other", ""),
        ("prove={prompts: prompts.jsonl, max_new_tokens: 3}", ""),
        ("precision={target: int4, drafter: int8}", ""),
        (f"engines=[{{backend: onnxruntime, provider: cpu}}, {RTX}]", ""),
        ("graphs=fused", ""),
        ("drafter.tokens=3", "draft"),
        ("constraints=true", "verify"),
        ("verify={method: typical, epsilon: 0.02, delta: 0.3}", "verify"),
        ("cache.max_length=128", "draft verify"),
        ("cache.batch_size=2", "draft verify"),
    ],
)
def test_a_trace_is_taken_unless_it_sees_a_change(pair, drafter, setting, expected):
    before, after = keys(pair, drafter), keys(pair, drafter, setting)
    assert {name for name, key in before.items() if after[name] != key} == set(expected.split())


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("drafter.model=other", "draft"), ("decoding=sampling", "verify"), (BILD, "draft verify")],
)
def test_what_a_draft_model_sees(pair, setting, expected):
    before, after = keys(pair, "drafter.sample=false"), keys(pair, "drafter.sample=false", setting)
    assert {name for name, key in before.items() if after[name] != key} == set(expected.split())


@pytest.mark.parametrize(("drafter", "expected"), [("drafter.tokens=2", "verify"), (f"drafter={HEAD}", "draft verify")])
def test_a_drafter_sees_a_target_that_it_reads(pair, tmp_path, drafter, expected):
    """Leave the folder's name out: the same files elsewhere have the same key."""
    folder = shutil.copytree(pair, tmp_path / "elsewhere")
    before = keys(pair, drafter)
    assert keys(folder, drafter) == before
    save(zoo.model("llama", seed=3), folder / "target")
    assert {name for name, key in keys(folder, drafter).items() if before[name] != key} == set(expected.split())


def test_keys_know_the_weights_of_gguf_files_and_what_an_adapter_changes(tmp_path):
    folder = tmp_path / "gguf"
    (folder / "recipe.yaml").parent.mkdir()
    (folder / "recipe.yaml").write_text("name: keys\ntarget: {model: target.gguf}\ndrafter: {kind: prompt_lookup}\n")
    found = []
    for scale in (0.01, 0.02):  # of random weights, which the file's metadata do not have
        model = gguf_files.save(folder / f"model-{scale}", "llama", initializer_range=scale)
        gguf_files.write_gguf(model, folder / "target.gguf", ("F32",))
        found.append(keys(folder / "recipe.yaml")["verify"])
    assert found[0] != found[1]

    adapters.write(tmp_path, target_modules=["q_proj"])
    (tmp_path / "recipe.yaml").write_text(
        "name: keys\ntarget: {model: base, adapter: adapter}\ndrafter: {kind: prompt_lookup}\n"
    )
    config = tmp_path / "adapter/adapter_config.json"
    before = keys(tmp_path / "recipe.yaml")["verify"]
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 4'))
    assert keys(tmp_path / "recipe.yaml")["verify"] != before
