"""EAGLE-3: its drafter against its reference over rounds, a bundle's loop over a prompt of many chunks, and bundles."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from speccompile.compiler.build import build
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.calibration import calibrated_ranges
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.traced_graphs import trace_graphs
from speccompile.compiler.lower.files import GRAPHS
from speccompile.compiler.lower.lowering_targets import lowering_target, weight_format
from speccompile.compiler.prove.graphs import eager_taps
from speccompile.errors import CheckpointError
from tests import zoo
from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.compile.head_loop import check_loop
from tests.heads.eagle3 import eagle3, of_norms

pytestmark = pytest.mark.builds(7)

BOUNDARIES = (1, 2, 2)
HEAD = partial(eagle3, boundaries=BOUNDARIES)


@pytest.mark.parametrize(
    "head",
    [
        {"dialect": "SpecForge", "draft_size": 60},
        {"dialect": "speculators", "norm_before_residual": True, "norm_output": True, "layers": 2},
        {"dialect": "ModelOpt", "qk_norm": True, "norm_output": True, "draft_size": 60},
        {"dialect": "speculators", "norm_before_fc": True, "fc_norm": True, "norms": True},
        {"dialect": "DeepSpec", "qk_norm": True, "sliding_window": 9, "use_sliding_window": True},
    ],
    ids=str,
)
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, head):
    head = dict(head)
    if head.pop("norms", False):
        head["tensors"] = of_norms(zoo.model("llama").config)
    check_rounds(plan_of(tmp_path, partial(HEAD, **head), "tokens: 3"))


@pytest.mark.sweep("two traces each", but=["fused"])
@pytest.mark.parametrize("graphs", ["separate", "fused"])
def test_a_prompt_of_many_chunks_leaves_no_wrong_row(tmp_path, graphs):
    plan = plan_of(tmp_path, partial(HEAD, draft_size=60), "tokens: 3", f"graphs: {graphs}")
    assert check_loop(replace(plan, prefill_chunk=7, batch_size=1), tmp_path) > 40


@pytest.mark.sweep("a bundle each, with its proof; a tree that grows is one of combinations.py in the first tier")
@pytest.mark.parametrize(
    "drafter",
    ["tokens: 3, sample: true", "tree: {depth: 2, top_k: 2, nodes: 4}", "tree: {depth: 3, top_k: 3, nodes: 7}"],
)
def test_generates_what_the_target_generates(tmp_path, drafter):
    more = "decoding: sampling" if "sample" in drafter else ""
    check_generation(plan_of(tmp_path, partial(HEAD, draft_size=60), drafter, more), tmp_path)
    check_embedding(tmp_path)


def check_embedding(folder):
    """Check that the target's is there once: the drafter's weights are those of its own files."""
    files = {path.name: path.stat().st_size for path in (folder / "bundle" / GRAPHS).iterdir()}
    own = sum(tensor.numel() * 4 for tensor in load_file(folder / "head" / "model.safetensors").values())
    drafter = next(size for name, size in files.items() if name.startswith("drafter") and name.endswith(".weights"))
    assert drafter < 1.1 * own


@pytest.mark.sweep("a bundle in another precision")
def test_the_targets_embedding_is_there_once(tmp_path):
    """zoo's tied target of the head's own width: file sizes, in another precision of the target."""
    plan = plan_of(tmp_path, HEAD, "tokens: 2", "precision: {target: int8, drafter: float32}")
    build(plan, tmp_path / "bundle", prove=False)
    check_embedding(tmp_path)


def test_values_that_are_no_numbers_are_named(tmp_path):
    plan = plan_of(tmp_path, HEAD, "tokens: 2")
    path = tmp_path / "head" / "model.safetensors"
    tensors = load_file(path)
    tensors["fc.weight"][3, 5] = torch.nan
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"model.safetensors: received tensor 'fc.weight' with NaN"):
        build(plan, tmp_path / "bundle", prove=False)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(("change", "message"), [(500, "lead to token"), (-1, "a token of the target twice")])
def test_a_map_that_leaves_the_vocabulary_is_named(tmp_path, change, message):
    plan = plan_of(tmp_path, partial(HEAD, draft_size=60), "tokens: 2")
    path = tmp_path / "head" / "model.safetensors"
    tensors = load_file(path)
    tensors["d2t"][1] = change if change > 0 else tensors["d2t"][0] - 1
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"model.safetensors: d2t: received .*{message}"):
        build(plan, tmp_path / "bundle", prove=False)


def test_activations_are_calibrated_on_what_the_target_gives(tmp_path):
    """Features and rows as a prompt makes them, not zeros: the range of what the first matrix reads is theirs."""
    engine = "engines: [{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: w8a8, drafter: w8a8}}]"
    plan = plan_of(tmp_path, HEAD, "tokens: 2", engine)
    (tmp_path / "parts").mkdir()
    traced = trace_graphs(open_round(plan).trace, tmp_path / "parts", CachedSteps(), prove=False)
    verify, draft = (part.graph for part in traced)
    prompts = [list(range(5, 25)), [7, 9, 200] * 5]
    numbers = weight_format(lowering_target(plan.engines[0]), plan.engines[0].precision, "drafter")
    ranges = calibrated_ranges(draft, numbers, tmp_path / "parts", prompts, verify, CachedSteps())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target", attn_implementation="eager")
    features = np.concatenate([eager_taps(model, prompt, plan.drafter.head.taps) for prompt in prompts])
    found = [pair for pair in ranges.values() if np.allclose(pair, (features.min(), features.max()), rtol=1e-3)]
    assert found, (features.min(), features.max(), ranges)
