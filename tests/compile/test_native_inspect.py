"""`inspect` of both commands: the same lines and objects, of bundles that were built and of what a bundle can have."""

import json

import pytest

from speccompile import native
from speccompile.bundle import BundleWriter
from speccompile.contract import INT4_VALUES
from tests.light.bundle_example import (
    LOCK,
    PROOF,
    constrained,
    fill,
    manifest,
    pictured,
    several_rows,
    tensorrt_entries,
    write_bundle,
)
from tests.light.fake_bundle import write_toy_bundle
from tests.light.test_inspect import CASCADE, QUALITY

TYPICAL = {"method": "typical", "exact": False, "parameters": {"epsilon": 0.09, "on": True, "größe": None}}
HITS = {
    "positions": 40, "hit_rate": [0.755, 0.5], "control": {"reading": "shifted", "hit_rate": [0.125, 0.0]},
    "readings": {"other taps": [0.9, 0.4], "größer": [0.2, 0.1]}, "better": ["other taps"],
}  # fmt: skip
QUANTIZED_CACHES = {
    "cache": {"dtype": INT4_VALUES, "perplexity": 8.75, "same_argmax": 0.99, "kl_divergence": 0.0005},
    "cache_acceptance": [
        {"engines": ["cpu", "gpu-8.6"],
         "quantized": {"rounds": 7, "drafted": 6, "tried": [6, 4, 0], "accepted": [4, 2, 0]},
         "float": {"rounds": 0, "drafted": 0, "tried": [0, 0, 0], "accepted": [0, 0, 0]}},
    ],
}  # fmt: skip
EXAMPLES = {
    "plain": {},
    "approximate": {"exact": False, "method": "typical", "plan": {"verify": TYPICAL}, "tokens": 0, "depth": 0},
    "ids": {"tokenizer": False, "eos_token_ids": tuple(range(20))},
    "cascade": {"plan": {"verify": {"parameters": {}}, "drafter": CASCADE}},
    "rows": several_rows(),
    "constrained": constrained(),
    "pictures": pictured("float32"),
    "pictures in eight bits": pictured("int8"),
}
DRAFTED = {"static": {"sample": True, "sampling": True}, "dynamic": {}}


def check(both, folder):
    for more in ([], ["--json"], ["--no-verify"], ["--cache-gb", "1.5e-3"], ["--json", "--cache-gb", "7"]):
        assert both.same("inspect", folder, *more).code == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_everything_that_a_bundle_can_have(both, tmp_path, name):
    check(both, write_bundle(tmp_path / "demo", **EXAMPLES[name]))


@pytest.mark.parametrize("tree", DRAFTED)
def test_drafts_that_are_a_tree(both, tmp_path, tree):
    check(both, write_toy_bundle(tmp_path / "toy", tree=tree, **DRAFTED[tree]))


def test_a_proof_with_a_quality_and_a_drafter(both, tmp_path):
    with BundleWriter(tmp_path / "demo") as writer:
        fill(writer.folder)
        (writer.folder / "graphs" / "weights.bin").write_bytes(bytes(1_500_000))
        shipped = writer.folder / "prefixes" / "onnxruntime-cpu"
        shipped.mkdir(parents=True)
        for name in ("tools.session", "system.session", "no prefix"):
            (shipped / name).write_bytes(b"1")
        prefix = {"engine": "onnxruntime-cpu", "tokens": 40}
        more = {
            "quality": QUALITY | QUANTIZED_CACHES,
            "drafter": HITS,
            "prefixes": [
                prefix | {"name": "tools", "continuations": 3},
                prefix | {"name": "system", "continuations": 0},
            ],
            "engines": [{"a": {"b": 1}}, {"c": 0.5}],
            "none": [],
            "passed": True,
        }
        writer.finish(manifest(), LOCK | {"empty": {}, "much": list(range(9))}, PROOF | more)
    check(both, tmp_path / "demo")


def test_engines_that_are_built_elsewhere(both, tmp_path):
    check(both, write_bundle(tmp_path / "demo", engines=tensorrt_entries()))


@pytest.mark.parametrize("more", [[], ["--json"], ["--no-verify", "--json"]], ids=str)
def test_inspect_shows_the_same(both, lookup, model, silent, more, tmp_path, monkeypatch):
    """Compare both outputs before either has opened the bundle: each records its own measurements then."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    for folder in (lookup, model, silent):
        assert both.same("inspect", folder, *more).code == 0


def test_inspect_shows_what_was_found_here(both, model, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    words = ("-q", "generate", model, "--prompt", "a", "--max-new-tokens", 1)
    both.native(*words)
    both.python(*words)
    ours, theirs = (json.loads(run("inspect", model, "--json").stdout)["here"] for run in (both.native, both.python))
    assert list(ours["onnxruntime-cpu"]) == list(theirs["onnxruntime-cpu"])
    if native.library():
        assert ours == theirs
        assert both.same("inspect", model).code == 0
