"""Bundles of targets with sinks and with latent attention: built by recipes, in every precision of a CPU."""

import json
from pathlib import Path

import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from tests import quantized_models, zoo
from tests.compile.kernel_runs import operators_of
from tests.compile.tiny_bundles import Built, noisy, save

NEW_TOKENS = 24
RECIPE = """
name: attention
target: {{model: target}}
drafter: {{kind: model, model: drafter, tokens: 4}}
precision: {{target: {precision}}}
cache: {{max_length: 96, prefill_chunk: 16, batch_size: 2}}
prove: {{max_new_tokens: 8}}
"""


def built(folder: Path, precision: str) -> Built:
    (folder / "recipe.yaml").write_text(RECIPE.format(precision=precision))
    build(make_plan(load_recipe(folder / "recipe.yaml")), folder / "bundle")
    return Built(folder)


def saved(name: str, folder: Path) -> Path:
    zoo.save(name, folder / "target")
    save(noisy(name, 0.03), folder / "drafter")
    return folder


def check_speculation(made: Built, *, is_float: bool) -> None:
    """Compare tokens with and without drafts; and with those of transformers, where the weights are its own."""
    prompts = made.prompts()
    alone = [made.bundle.generate(p, max_new_tokens=NEW_TOKENS, autoregressive=True).token_ids for p in prompts]
    for pair in ((0, 1), (2, 7), (5, 3)):
        rows = made.bundle.generate_batch([prompts[i] for i in pair], max_new_tokens=NEW_TOKENS, adaptive=False)
        assert [row.token_ids for row in rows] == [alone[i] for i in pair]
    if is_float:
        assert alone == [made.reference(prompt, NEW_TOKENS) for prompt in prompts]


def operators(made: Built) -> set[str]:
    (file,) = (made.path / "graphs").glob("verify.onnxruntime-cpu*.onnx")
    return set(operators_of(file))


@pytest.mark.sweep("a bundle each, with its proof; whole graphs with sinks and latent rows are in test_masked")
@pytest.mark.parametrize("precision", ["float32", "int8", "int4"])
@pytest.mark.parametrize(("name", "attends"), [("gpt_oss", "AttendSinks"), ("deepseek_v3", "AttendLatent")])
def test_speculative_is_autoregressive_and_transformers_greedy(name, attends, precision, tmp_path):
    made = built(saved(name, tmp_path), precision)
    check_speculation(made, is_float=precision == "float32")
    found = operators(made)
    assert attends in found
    assert not {"MatMul", "Gemm"} & found  # whose rows would depend on the rows beside them


@pytest.mark.sweep("a bundle with its proof")
def test_latent_rows_are_kept_compressed(tmp_path):
    made = built(saved("deepseek_v2", tmp_path), "float32")
    check_speculation(made, is_float=True)
    manifest = json.loads((made.path / "manifest.json").read_bytes())
    shapes = {t["name"]: t["shape"] for graph in manifest["graphs"] for t in graph["inputs"] if t["role"] == "state"}
    widths = zoo.LATENT["kv_lora_rank"], zoo.LATENT["qk_rope_head_dim"]
    assert [(shapes[f"target.{kind}.0"][1], shapes[f"target.{kind}.0"][3]) for kind in ("key", "value")] == [
        (1, widths[0]), (1, widths[1])
    ]  # fmt: skip


@pytest.mark.sweep("a bundle with its proof")
def test_experts_of_gpt_oss_in_four_bits(tmp_path):
    saved("gpt_oss", tmp_path)
    quantized_models.pack_experts(tmp_path / "target")
    check_speculation(built(tmp_path, "int4"), is_float=False)


@pytest.mark.sweep("a bundle with its proof")
def test_attention_that_reads_its_values_twice(tmp_path):
    check_speculation(built(saved("diffllama", tmp_path), "int8"), is_float=False)
