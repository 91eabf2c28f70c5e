"""Manifests changed at random, with new hashes: an attacker can write both.

Both runtimes open and run each: they give the tokens of the bundle that was changed, or one error, the same. What only
names something, or allows less than the graphs do, changes no token.
"""

import json
import resource
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from speccompile.bundle import Manifest, open_bundle
from speccompile.bundle.buffers import buffers
from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.manifest import canonical_json
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.contract import Graph
from speccompile.runtime import Bundle
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.test_bundle_consistency import CONTRADICTIONS, seeing
from tests.light.test_bundle_consistency import KINDS as CONSISTENT
from tests.native.bundle_lines import Lines, outcome
from tests.native.native_api import NativeBundle
from tests.native.test_native_bundle import places
from tests.native.toy_onnx import continuation, write_arithmetic_bundle

KINDS: dict[str, dict[str, Any]] = {
    "drafted": {},
    "fused": {"fused": True},
    "alone": {"drafts": False, "rows": 1},
    "sampled": {"samples": True},
}
PROMPT, NEW_TOKENS = [5, 200, 31, 7, 7, 90, 3, 250, 11], 12
VALUES = (
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    64,
    96,
    200,
    1000,
    2**31,
    2**62,
    True,
    None,
    "",
    "x",
    "window",
    "batch",
    "int64",
    "io",
    "state",
)
CHANGES_TOKENS = ("eos_token_ids", "max_length")
"""Fields that say when a text ends, and are told by nothing else in this bundle without a plan of its target."""
FEW = 30
"""Changes of each kind of bundle in the first tier: more than half of them are refused."""
MOST_MEMORY = 400_000_000
"""Bytes that all of this may add to the process."""


@pytest.fixture(scope="module", params=KINDS)
def bundle(request, tmp_path_factory) -> Path:
    return write_arithmetic_bundle(tmp_path_factory.mktemp("hostile") / "bundle", **KINDS[request.param])


def changed(data: dict[str, Any], dice: Random) -> dict[str, Any]:
    """Return a manifest with one change or two; what it says twice it mostly says twice."""
    whole: dict[str, Any] = json.loads(json.dumps(data))
    for _ in range(dice.choice([1, 1, 2])):
        part = dice.choice([whole, whole["graphs"], whole["engines"]])
        every = [(holder, key) for holder, key in places(part) if key not in CHANGES_TOKENS] or [(whole, "name")]
        if part is whole and dice.random() < 0.7:
            every = [
                (holder, key) for holder, key in every if holder is whole and not isinstance(holder[key], list | dict)
            ]
        holder, key = dice.choice(every)
        before = holder[key]
        if isinstance(holder, list) and dice.random() < 0.2:
            holder.pop(key)
        elif isinstance(before, int) and not isinstance(before, bool) and dice.random() < 0.7:
            holder[key] = dice.choice([before + 1, before - 1, 2 * before, -before, 10 * before])
        else:
            holder[key] = dice.choice(VALUES)
    if dice.random() < 0.7:
        with suppress(TypeError, KeyError, IndexError):  # of what was changed to something else
            whole["engines"][0]["graphs"] = whole["graphs"]
    return mended(whole) if dice.random() < 0.9 else whole


def mended(data: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with the aliases and buffers that follow from its graphs, where they can be told."""
    try:
        graphs = [*data["graphs"], *(each for engine in data["engines"] for each in engine["graphs"])]
        for graph in graphs:
            read = {tensor["buffer"]: tensor["name"] for tensor in graph["inputs"]}
            states = [tensor for tensor in graph["outputs"] if tensor["role"] == "state"]
            graph["aliases"] = {tensor["name"]: read[tensor["buffer"]] for tensor in states}
        own = buffers([Graph.from_json(graph) for graph in data["graphs"]])
        return data | {"buffers": [asdict(buffer) for buffer in own]}
    except (KeyError, TypeError):
        return data


def python(folder: Path) -> list[int]:
    with Bundle.open(folder, threads=1) as opened:
        return opened.generate(PROMPT, max_new_tokens=NEW_TOKENS).token_ids


def native(folder: Path, library: Path, onnxruntime: Path) -> list[int]:
    opened = NativeBundle(folder, library=library, onnxruntime=onnxruntime, threads=1)
    (found,) = opened.session().generate([PROMPT], max_new_tokens=NEW_TOKENS)
    tokens: list[int] = found["token_ids"]
    return tokens


def check(bundle: Path, folder: Path, runtimes: Any, numbers: range) -> None:
    """Try changes; `numbers` are their seeds."""
    shutil.copytree(bundle, folder)
    written = json.loads((bundle / "manifest.json").read_bytes())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    expected = python(bundle)
    assert expected == continuation(PROMPT, NEW_TOKENS)
    refused = 0
    for number in numbers:
        data = changed(written, Random(number))
        (folder / "manifest.json").write_text(json.dumps(data))
        write_hashes(folder, hash_folder(folder))
        ours, theirs = outcome(lambda: python(folder)), outcome(lambda: native(folder, *runtimes))
        for found in (ours, theirs):
            assert len(found) > 1 or found == (expected,), (number, found)
        assert len(ours) == len(theirs), (number, ours, theirs)
        refused += len(ours) > 1
    assert refused > len(numbers) / 2
    assert 1000 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MEMORY


def test_changed_manifests_give_the_same_tokens_or_an_error(bundle, tmp_path, native_library, onnxruntime_library):
    check(bundle, tmp_path / "changed", (native_library, onnxruntime_library), range(FEW))


@pytest.mark.sweep("5,000 more changes of each kind of bundle")
def test_many_changed_manifests(bundle, tmp_path, native_library, onnxruntime_library):
    check(bundle, tmp_path / "changed", (native_library, onnxruntime_library), range(FEW, 5075))


@pytest.mark.parametrize(("kind", "change", "message"), CONTRADICTIONS)
def test_a_manifest_that_contradicts_itself(
    lines: Lines, tmp_path: Path, kind: str, change: Callable[[Manifest], Manifest], message: str
) -> None:
    folder = write_toy_bundle(tmp_path / "toy", **CONSISTENT[kind])
    (folder / "manifest.json").write_bytes(canonical_json(change(toy_manifest(**CONSISTENT[kind])).to_json()))
    write_hashes(folder, hash_folder(folder))
    ours, theirs = (outcome(call) for call in (lambda: lines.ask("open", str(folder)), lambda: open_bundle(folder)))
    assert message in theirs[1]
    assert ours == theirs


def test_an_engine_of_tensorrt_that_encodes_pictures_agrees(lines: Lines, tmp_path: Path) -> None:
    folder = write_toy_bundle(tmp_path / "toy")
    (folder / "manifest.json").write_bytes(canonical_json(seeing(encodes=True)(toy_manifest()).to_json()))
    write_hashes(folder, hash_folder(folder))
    assert open_bundle(folder).manifest.engines[0].files.keys() == {"verify", "draft", ENCODE_IMAGE}
    assert lines.ask("open", str(folder))["manifest"]["tokens"] > 0


@pytest.mark.parametrize("kind", CONSISTENT)
def test_a_manifest_that_agrees(lines: Lines, tmp_path: Path, kind: str) -> None:
    assert lines.ask("open", str(write_toy_bundle(tmp_path / "toy", **CONSISTENT[kind])))["manifest"]["tokens"] >= 0
