"""The engines for GPUs without one: compiled graphs over a fake GPU's memory, the processor computing in its place."""

import json
from dataclasses import replace

import pytest

from speccompile.compiler.build import build
from speccompile.compiler.prove.tokens import check_equal, decode_both, next_logits
from speccompile.errors import UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.runtime.devices import engines
from speccompile.runtime.devices.onnxruntime_device import PROVIDERS
from speccompile.runtime.devices.tensorrt_program import Program
from tests import zoo
from tests.compile.test_constraints import CASES, reference
from tests.compile.tiny_bundles import NEW_TOKENS, Built, noisy, save
from tests.light.fake_cuda import FakeCuda
from tests.light.fake_tensorrt import NAMES, FakeTensorRT

pytestmark = pytest.mark.builds(2)

ENGINES = """
  - {backend: onnxruntime, provider: cuda, name: float32}
  - {backend: onnxruntime, provider: cuda, name: float16, precision: PRECISION}
  - {backend: tensorrt_rtx, compute_capability: "8.9", name: rtx, precision: PRECISION}
"""
CACHE = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"
PRECISIONS = {"fused": "{target: float16, drafter: float16}", "lookup": "{target: float16}"}
RECIPES = {
    "fused": f"drafter: {{kind: model, model: drafter, tokens: 3}}\ngraphs: fused\nengines:{ENGINES}",
    "lookup": f"drafter: {{kind: prompt_lookup, tokens: 4, ngram: 3}}\nconstraints: true\nengines:{ENGINES}",
}


@pytest.fixture(
    scope="module", params=[pytest.param("fused", marks=pytest.mark.sweep("two graphs and engines more")), "lookup"]
)
def case(request, tmp_path_factory):
    """Return a bundle with engines for GPUs."""
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    save(zoo.model("llama"), folder / "target")
    save(noisy("llama", 0.03), folder / "drafter")
    recipe = RECIPES[name].replace("PRECISION", PRECISIONS[name])
    (folder / "recipe.yaml").write_text(f"name: gpu\ntarget: {{model: target}}\n{CACHE}\n{recipe}\n")
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=False)
    return Built(folder)


@pytest.fixture
def cuda(monkeypatch):
    """Return a fake GPU whose memory ONNX Runtime's provider for the processor computes on."""
    fake = FakeCuda()
    monkeypatch.setitem(PROVIDERS, "cuda", replace(PROVIDERS["cuda"], name="CPUExecutionProvider", memory="cpu"))
    monkeypatch.setattr(engines, "open_device", fake.open)
    return fake


def prompts_of(case):
    return [prompt for prompt in case.prompts() if len(prompt) < 96 - NEW_TOKENS]


def test_float32_gives_the_references_tokens(case, cuda):
    bundle = Bundle.open(case.path, engine="float32", threads=1)
    for found in decode_both(bundle, prompts_of(case), NEW_TOKENS):
        expected = case.reference(found.prompt_ids)
        assert found.speculative.token_ids == found.autoregressive.token_ids == expected


def test_float16_speculates_without_changing_its_own_tokens(case, cuda):
    bundle = Bundle.open(case.path, engine="float16", threads=1)
    cases = list(decode_both(bundle, prompts_of(case), NEW_TOKENS))
    for found in cases:
        check_equal(bundle, found)
    assert any(max(found.speculative.path_lengths) > 1 for found in cases)


@pytest.mark.parametrize("kind", CASES)
def test_constraints_cross_to_the_device(case, cuda, kind):
    """Constrain a slot and free it again: the next generation is as without it."""
    bundle = Bundle.open(case.path, engine="float32", threads=1)
    if case.path.parent.name.startswith("fused"):
        with pytest.raises(UsageError, match="was built without constraints"):
            bundle.constraint(kind, CASES[kind])
        return
    constraint, prompt = bundle.constraint(kind, CASES[kind]), prompts_of(case)[0]
    free = bundle.generate(prompt, max_new_tokens=NEW_TOKENS).token_ids
    for way in ({"adaptive": False}, {"autoregressive": True}):
        found = bundle.generate(prompt, constraint=constraint, max_new_tokens=50, **way)
        assert found.token_ids == reference(case.target, prompt, kind, 50)
        assert bundle.generate(prompt, max_new_tokens=NEW_TOKENS).token_ids == free


def test_states_stay_where_they_are(case, cuda):
    bundle = Bundle.open(case.path, engine="float16", threads=1)
    states = {t.buffer: t.shape for g in bundle.entry.graphs for t in g.inputs if t.role == "state"}
    sizes = {shape: bundle.engine.host_view(name, shape).nbytes for name, shape in states.items()}
    prompt = [17, 230, 45, 99, 101] * 6
    bundle.generate(prompt, max_new_tokens=NEW_TOKENS)
    before = {name: bundle.engine.address(name) for name in states}
    cuda.copies.clear()
    bundle.generate(prompt, max_new_tokens=NEW_TOKENS)
    assert {name: bundle.engine.address(name) for name in states} == before
    assert max(size for _, size in cuda.copies) < min(sizes.values())
    assert all(bundle.engine.host_view(name, shape).any() for name, shape in states.items())


def test_logits_are_those_of_the_reference(case, cuda):
    bundle = Bundle.open(case.path, engine="float32", threads=1)
    for prompt in prompts_of(case):
        assert int(next_logits(bundle, prompt).argmax()) == case.reference(prompt)[0]


def test_real_engines_are_what_the_runtime_expects(case, cuda, tmp_path, monkeypatch):
    """TensorRT-RTX's own description of the networks that it built, met by the check that opens them on a GPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    manifest = Bundle.open(case.path, engine="float32", threads=1).manifest
    (entry,) = (entry for entry in manifest.engines if entry.name == "rtx")
    for graph in entry.graphs:
        report = entry.build.reports[graph.name]
        rows = [("INPUT", row) for row in report["inputs"]] + [("OUTPUT", row) for row in report["outputs"]]
        tensors = {
            row["name"]: {
                "mode": mode, "dtype": NAMES[row["dtype"]], "shape": row["shape"], "location": "DEVICE",
                "aliased": report["aliases"].get(row["name"]),
            }
            for mode, row in rows
        }  # fmt: skip
        plan = tmp_path / f"{graph.name}.engine"
        plan.write_text(json.dumps({"graph": graph.name, "tensors": tensors}))
        Program(FakeTensorRT(cuda, manifest), plan, graph, cuda.open())
