"""Whole bundles for TensorRT, built without a GPU: every precision, the fused step, what is deferred, what fails."""

import json
import re
import shutil

import onnx
import pytest

from speccompile.bundle import open_bundle
from speccompile.compiler.engines import flavour
from speccompile.compiler.lower import lowering_targets
from speccompile.compiler.lower.compose import compose_step
from speccompile.compiler.lower.passes import Nodes
from speccompile.compiler.lower.quantize import numpy_quantizers
from speccompile.compiler.prove import graphs as graph_proof
from speccompile.errors import EngineError
from speccompile.runtime import Bundle, TextStream
from tests import zoo
from tests.compile import tiny_bundles
from tests.compile.tiny_bundles import contents

pytestmark = pytest.mark.builds(6)

RTX = "{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: %s, drafter: %s}}"
LOOKUP = "drafter: {kind: prompt_lookup, tokens: 3}"
MISSING = EngineError("backend 'tensorrt' needs the Python module tensorrt", hint="pip install tensorrt")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with a target and a drafter."""
    folder = tmp_path_factory.mktemp("models")
    tiny_bundles.save(zoo.model("llama"), folder / "target")
    tiny_bundles.save(tiny_bundles.noisy("llama", 0.03), folder / "drafter")
    return folder


@pytest.fixture
def recipe(models, tmp_path, monkeypatch):
    """Write a recipe of these engines beside the models; the cache of engines is the test's own."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))

    def write(*engines: str, rest: str = "drafter: {kind: model, model: drafter, tokens: 2}"):
        folder = tmp_path / "recipe"
        shutil.copytree(models, folder, dirs_exist_ok=True)
        cache = "cache: {max_length: 96, prefill_chunk: 16}\nprove: {max_new_tokens: 12}"
        lines = ["name: tiny", "target: {model: target}", rest, cache, "engines:", *(f"- {each}" for each in engines)]
        (folder / "recipe.yaml").write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.mark.sweep("twelve engines")
def test_every_precision_is_built_and_proven(cli, recipe, tmp_path):
    words = [("float16", "float16"), ("bfloat16", "bfloat16"), ("int8", "float16"), ("int4", "w8a8"), ("w8a8", "fp8"),
             ("fp8", "float16")]  # fmt: skip
    code, _, err = cli("build", recipe(*(RTX % pair for pair in words)), "--output", tmp_path / "out")
    assert code == 0, err
    bundle = open_bundle(tmp_path / "out")
    for entry, (target, drafter) in zip(bundle.manifest.engines, words, strict=True):
        assert entry.precision == {"target": target, "drafter": drafter}
        assert sorted(entry.files) == ["draft", "verify"]
        caches = {tensor.dtype for graph in entry.graphs for tensor in graph.inputs if tensor.role == "state"}
        assert caches == {"bfloat16" if target == "bfloat16" else "float16"}
        for graph in entry.graphs:
            report = entry.build.reports[graph.name]
            assert report["aliases"] == graph.aliases
            assert {row["name"]: row["dtype"] for row in report["inputs"]} == {t.name: t.dtype for t in graph.inputs}
            assert {row["name"] for row in report["outputs"]} == {t.name for t in graph.outputs}
            assert report["bytes"] == (bundle.folder / entry.files[graph.name]).stat().st_size
            assert report["fusion"]["layers"]
            assert entry.build.settings[graph.name]["compute_capability"] == "8.9"
    assert not list((tmp_path / "out" / "graphs").glob("*.onnx"))
    assert not list((tmp_path / "out" / "graphs").glob("*.weights"))
    tokens = {row["precision"]["target"]: row for row in bundle.proof["engines"]}
    assert sorted(tokens) == sorted(target for target, _ in words)
    for row in tokens.values():
        assert row["executed_by"] == "onnxruntime cpu"
        assert row["equal"] + len(row["near_ties"]) == row["prompts"] == 3
    assert {row["precision"] for row in bundle.proof["graphs"] if "precision" in row} >= {"float16", "int4", "fp8"}


@pytest.mark.sweep("engines take longest")
@pytest.mark.parametrize(
    "drafter", ["{kind: model, model: drafter, tokens: 3}", "{kind: prompt_lookup, tokens: 3}"], ids=["model", "lookup"]
)
def test_a_fused_step_is_built_beside_verify(cli, recipe, tmp_path, monkeypatch, drafter):
    """Prove its drafts as after a near-tie, where the two forms of the graph draft differently."""
    same = graph_proof.check_same
    monkeypatch.setattr(graph_proof, "check_same", lambda *given: same(*given) | {"other_drafts": given[2] == "step"})
    precision = "{target: float16, drafter: float16}" if "model" in drafter else "{target: float16}"
    engines = f"{{backend: tensorrt_rtx, compute_capability: ['8.6', '12.0'], precision: {precision}}}"
    folder = recipe("{backend: onnxruntime}", engines, rest=f"drafter: {drafter}\ngraphs: fused")
    code, _, err = cli("build", folder, "--output", tmp_path / "out", "--no-cache")
    assert code == 0, err
    bundle = Bundle.open(tmp_path / "out")
    proven = [row["level"] for row in open_bundle(tmp_path / "out").proof["graphs"] if row["graph"] == "step"]
    assert {"tensorrt against eager", "onnxruntime-cpu against eager"} < set(proven)
    names = ["onnxruntime-cpu", "tensorrt_rtx-8.6-float16", "tensorrt_rtx-12.0-float16"]
    assert [entry.name for entry in bundle.manifest.engines] == names
    for entry in bundle.manifest.engines:
        assert sorted(entry.files) == ["step", "verify"]
        for graph in entry.graphs:
            if entry.build:
                assert entry.build.reports[graph.name]["aliases"] == graph.aliases
    prompt = list(range(3, 20))
    speculative = bundle.generate(prompt, max_new_tokens=40, adaptive=False)
    autoregressive = bundle.generate(prompt, max_new_tokens=40, autoregressive=True)
    assert speculative.token_ids == autoregressive.token_ids
    assert speculative.rounds < autoregressive.rounds
    assert isinstance(bundle.stream(prompt, max_new_tokens=2), TextStream)


@pytest.mark.sweep("engines of three bundles")
def test_constraints_are_built_for_both_widths_of_what_is_allowed(cli, recipe, tmp_path):
    """Prove in turns with one number, where no slot is constrained, and with one number for every token."""
    rest = "drafter: {kind: prompt_lookup, tokens: 3}\ndecoding: sampling\nconstraints: true"
    engines = "{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: float16}}"
    nv = "{backend: onnxruntime, provider: nv_tensorrt_rtx, precision: {target: float16}}"
    code, _, err = cli("build", recipe(engines, nv, rest=rest), "--output", tmp_path / "out")
    assert code == 0, err
    bundle = open_bundle(tmp_path / "out")
    size = bundle.manifest.vocabulary_size
    profile = bundle.manifest.engines[0].build.settings["verify"]["profile"]
    assert profile["allowed"] == [[1, 1, 1], [1, 4, 1], [1, 16, size]]
    for row in bundle.proof["engines"]:
        assert row["equal"] + len(row["near_ties"]) == row["prompts"] == 3


@pytest.mark.parametrize("wrong", ["n_given", pytest.param("n_total", marks=pytest.mark.sweep("two traces more"))])
def test_a_step_whose_parts_are_put_together_wrong_is_not_proven(cli, recipe, tmp_path, monkeypatch, wrong):
    """Tokens would stay right, and drafts be refused that need not be."""

    def wired(verify, draft, graph):
        inputs = {value.name: value for value in verify.graph.inputs}
        (n_path,) = (value for value in draft.graph.inputs if value.name == "n_path")
        for use in list(n_path.uses()):
            use.node.replace_input_with(use.idx, inputs[wrong])
        return compose_step(verify, draft, graph)

    monkeypatch.setattr("speccompile.compiler.build.lowered.compose_step", wired)
    engine = "{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: float16}}"
    folder = recipe(engine, rest=f"{LOOKUP}\ngraphs: fused")
    code, _, err = cli("build", folder, "--output", tmp_path / "out", "--no-cache")
    assert code == 3
    assert re.search(
        r"^error: step, tensorrt against eager, next_window after window [78]: \[\[.*\]\], expected \[\[", err
    )
    assert not (tmp_path / "out").exists()


def test_a_scale_of_another_column_is_not_proven(cli, recipe, tmp_path, monkeypatch):
    """Shift a scale in both forms of the graph, which then agree with each other."""
    right = numpy_quantizers.scales
    monkeypatch.setattr(numpy_quantizers, "scales", lambda weight, *rest: right(weight[:, ::-1], *rest))
    folder = recipe("{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: int4}}", rest=LOOKUP)
    code, _, err = cli("build", folder, "--output", tmp_path / "out", "--no-cache")
    assert code == 3
    assert "verify in int4: weight " in err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_built_here_is_deferred_and_finished(cli, recipe, tmp_path, monkeypatch):
    def lacking(backend):
        if backend == "tensorrt":
            raise MISSING

    monkeypatch.setattr("speccompile.compiler.build.tensorrt.check_buildable", lacking)
    deferred = "{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: int8}, defer: true}"
    enterprise = "{backend: tensorrt, precision: {target: float16}}"
    folder = recipe(deferred, enterprise, "{backend: onnxruntime}", rest=LOOKUP)
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert code == 0, err
    assert "engine tensorrt-float16 is deferred to `speccompile finish`: backend 'tensorrt' needs the Python" in err
    before = open_bundle(tmp_path / "out").manifest
    assert [bool(entry.deferred) for entry in before.engines] == [True, True, False]
    assert all(sorted(entry.build.sources) == ["draft", "verify"] for entry in before.engines[:2])

    code, out, err = cli("finish", tmp_path / "out", "--engine", before.engines[0].name, "--json")
    assert code == 0, err
    assert list(json.loads(out)["built"]) == [before.engines[0].name]
    after = open_bundle(tmp_path / "out").manifest
    assert [bool(entry.deferred) for entry in after.engines] == [False, True, False]
    assert sorted(after.engines[0].files) == ["draft", "verify"]
    assert after.engines[1:] == before.engines[1:]


@pytest.mark.sweep("several engines")
def test_the_other_engines_are_kept_when_one_is_refused(cli, recipe, tmp_path, monkeypatch):
    def with_nonzero(model):
        fired = lower(model)
        nodes = Nodes()
        found = nodes("ReduceSum", nodes("NonZero", model.graph.inputs[0]))
        path = model.graph.outputs[0]
        assert path.producer() is not None
        added = nodes("Add", path, nodes("Mul", found, nodes("Constant", value_int=0)))
        model.graph.extend(nodes.nodes)
        added.name, path.name, added.dtype, added.shape = path.name, "path_before", path.dtype, path.shape
        model.graph.outputs[0] = added
        return fired

    lower, tensorrt = lowering_targets.TENSORRT.lower, lowering_targets.TENSORRT
    broken = lowering_targets.LoweringTarget(tensorrt.name, with_nonzero, tensorrt.weights, tensorrt.compute)
    monkeypatch.setitem(lowering_targets.LOWERING_TARGETS, ("tensorrt_rtx", "cuda"), broken)
    folder = recipe("{backend: onnxruntime}", RTX % ("float16", "float16"))
    code, out, err = cli("build", folder, "--output", tmp_path / "out", "--skip-prove", "--reduce")
    assert (code, out) == (1, "")
    (reduced,) = (tmp_path / "out.reduced").iterdir()
    assert reduced.name == "tensorrt_rtx-8.9-float16.verify"
    assert [node.op_type for node in onnx.load(reduced / "reduced.onnx").graph.node] == ["NonZero"]
    assert "1 of 2 engines could not be built; the others (onnxruntime-cpu) are in" in err
    assert "engine tensorrt_rtx-8.9-float16: " in err
    for words in ("NonZero", "verify", "8.9", "float16"):
        assert words in err
    assert [entry.name for entry in open_bundle(tmp_path / "out").manifest.engines] == ["onnxruntime-cpu"]
    assert not [name for name in contents(tmp_path / "out") if name.endswith(".engine")]

    code, _, err = cli("build", recipe(RTX % ("float16", "float16")), "--output", tmp_path / "none", "--skip-prove")
    assert code == 1
    assert "1 of 1 engines could not be built; no bundle was written" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("variable", ["BUILDER_SECONDS", "BUILDER_MEMORY_GB", "CACHE_LIMIT_GB"])
def test_a_limit_that_is_no_number_is_told_before_any_work(cli, recipe, tmp_path, monkeypatch, variable):
    monkeypatch.setenv(f"SPECCOMPILE_{variable}", "much")
    monkeypatch.setattr("speccompile.compiler.build.trace_graphs", lambda *_: pytest.fail("the work began"))
    code, _, err = cli("build", recipe(RTX % ("float16", "float16")), "--output", tmp_path / "out")
    assert code == 2
    assert f"error: $SPECCOMPILE_{variable}: received 'much', expected a number" in err


@pytest.mark.parametrize("graphs", ["separate", "fused"])
def test_a_builder_without_memory_is_told_before_any_work(cli, recipe, tmp_path, monkeypatch, graphs):
    monkeypatch.setenv("SPECCOMPILE_BUILDER_MEMORY_GB", "0.01")
    monkeypatch.setattr("speccompile.compiler.build.trace_graphs", lambda *_: pytest.fail("the work began"))
    rest = f"drafter: {{kind: model, model: drafter, tokens: 2}}\ngraphs: {graphs}"
    engine = RTX % ("float16", "float16")
    code, _, err = cli("build", recipe(engine, rest=rest), "--output", tmp_path / "out")
    assert code == 1
    assert re.search(
        r"error: engine tensorrt_rtx-8.9-float16: for \S+ GB of weights the builder holds at least \S+ GB of memory "
        r"and as a rule \S+ GB, and it may hold 0.01 GB \(\$SPECCOMPILE_BUILDER_MEMORY_GB\)",
        err,
    )
    assert "set the engine's `defer: true` and run `speccompile finish`" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.sweep("engines take longest")
def test_a_builder_that_may_run_out_of_memory_is_told_as_a_note(cli, recipe, tmp_path, monkeypatch):
    """Build where the certain part of the memory fits and the usual one does not: a note, and no refusal."""
    monkeypatch.setattr("speccompile.compiler.engines.memory_estimate._OWN", 1e12)
    code, _, err = cli("build", recipe(RTX % ("float16", "float16")), "--output", tmp_path / "out", "--skip-prove")
    assert code == 0, err
    assert "note: engine tensorrt_rtx-8.9-float16 may not be built: for" in err
    assert "as a rule 1e+03 GB, and it may hold" in err


def test_a_missing_builder_is_told_before_any_work(cli, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(flavour, "load", flavour.load.__wrapped__)
    monkeypatch.setitem(__import__("sys").modules, "tensorrt_rtx", None)
    code, _, err = cli("build", recipe(RTX % ("float16", "float16")), "--output", tmp_path / "out")
    assert code == 1
    assert "backend 'tensorrt_rtx' needs the Python module tensorrt_rtx, which cannot be imported" in err
    assert "hint: pip install 'speccompile[tensorrt-rtx]'" in err
    assert not (tmp_path / "out").exists()
