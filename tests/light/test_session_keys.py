"""Keys of sessions: each fact on which states depend changes the field of its name, and no other."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from speccompile.bundle.hashes import FileRecord
from speccompile.bundle.reader import OpenedBundle
from speccompile.runtime import session_key
from speccompile.runtime.session_key import SessionKey
from tests.light.fake_bundle import toy_manifest

FILES = ("graphs/target.a.weights", "graphs/drafter.a.weights", "graphs/verify.onnx", "graphs/draft.onnx")


def opened(files=FILES, **changes) -> OpenedBundle:
    plan = {"target": {"folder": "t", "commit": "1"}, "drafter": {"kind": "model"}} | changes.pop("plan", {})
    versions = changes.pop("versions", {"torch": "2"})
    inputs = changes.pop("inputs", {"config.json": "c", "tokenizer.json": "t"})
    contents = changes.pop("contents", {})
    manifest = toy_manifest(plan={**toy_manifest().plan, **plan}, **changes)
    hashes = {file: FileRecord(contents.get(file, file), 1) for file in files}
    lock = {"versions": versions, "inputs": {"target": {"files": inputs}}}
    return OpenedBundle(Path(), manifest, lock, {}, SimpleNamespace(files=hashes))  # type: ignore[arg-type]


def key(*, tokenizer="t", exact=True, engine=0, precision=None, **changes) -> SessionKey:
    bundle = opened(**changes)
    entry = bundle.manifest.engines[engine]
    if precision:
        entry = replace(entry, precision={**entry.precision, **precision})
    return SessionKey.of(bundle, entry, tokenizer, exact=exact)


CHANGED = {
    "another build": ({"versions": {"torch": "3"}}, {"build"}),
    "weights of the target": ({"contents": {FILES[0]: "other"}}, {"target weights"}),
    "config of the target": ({"inputs": {"config.json": "d", "tokenizer.json": "t"}}, {"target"}),
    "what the recipe says of the target": ({"plan": {"target": {"folder": "t", "dtype": "float16"}}}, {"target"}),
    "precision of the target": ({"precision": {"target": "int8"}}, {"target"}),
    "capacity": ({"max_length": 168}, {"max_length"}),
    "tokenizer": ({"tokenizer": "u"}, {"tokenizer"}),
    "vocabulary": ({"vocabulary_size": 7}, {"vocabulary"}),
    "windows that differ in bits": ({"exact": False}, {"machine"}),
    "weights of the drafter": ({"contents": {FILES[1]: "other"}}, {"drafter"}),
    "graph of the drafter": ({"contents": {FILES[3]: "other"}}, {"drafter"}),
    "precision of the drafter": ({"precision": {"drafter": "int8"}}, {"drafter"}),
    "plan of the drafter": ({"plan": {"drafter": {"kind": "eagle"}}}, {"drafter"}),
    "graph of the target": ({"contents": {FILES[2]: "other"}}, set()),
    "tokenizer file of the target": ({"inputs": {"config.json": "c", "tokenizer.json": "u"}}, set()),
    "revision of the target": ({"plan": {"target": {"folder": "t", "commit": "2"}}}, set()),
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(session_key.native, "kernels", lambda: "scalar")


@pytest.mark.parametrize(("changes", "expected"), CHANGED.values(), ids=CHANGED)
def test_a_changed_fact_changes_the_field_of_its_name(changes, expected):
    one, other = key(), key(**changes)
    found = {name for name in one.target.keys() | other.target.keys() if one.target.get(name) != other.target.get(name)}
    assert found | ({"drafter"} if one.drafter != other.drafter else set()) == expected


def test_weights_in_the_graphs_are_those_of_the_graphs():
    without = FILES[1:]
    assert key(files=without).target["target weights"]
    assert key(files=without) != key(files=without, contents={FILES[2]: "other"})


def test_machines_differ_where_windows_do():
    one, other = key(exact=False), key(exact=False, engine=1)
    assert one.target["machine"] != other.target["machine"]
    assert key().target["machine"] == key(engine=1).target["machine"] == "any"


def test_engines_without_kernels_are_of_a_machine(monkeypatch):
    monkeypatch.setattr(session_key.native, "kernels", lambda: "none")
    assert key().target["machine"] != "any"
