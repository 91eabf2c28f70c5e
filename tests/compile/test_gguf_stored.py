"""Codes of GGUF files as they are: every type in one bundle, with its values, and the tokens that follow."""

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.bundle.reader import open_bundle
from speccompile.compiler.build import build
from speccompile.compiler.checkpoints.gguf.block_types import CODE_KINDS
from speccompile.compiler.lower.native import layouts
from speccompile.compiler.lower.quantize.formats import code_fields
from speccompile.compiler.weights.gguf.weight import Blocks
from speccompile.compiler.weights.open_file import opened
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests.compile.kernel_cases import graph
from tests.compile.kernel_runs import KernelRuns, needs_library, operators_of, run_bodies, same_bits
from tests.gguf_files import MODELS, blocks_of, save, save_reference, write_gguf
from tests.native.side_by_side import SideBySide

PROMPT = [5, 9, 20, 31, 7, 77, 13]
RECIPE = """
name: gguf
target: {model: target.gguf}
drafter: {kind: model, model: draft.gguf, tokens: 3}
precision: {target: stored, drafter: stored}
cache: {max_length: 64, prefill_chunk: 16}
prove: {max_new_tokens: 8}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the folder of the bundle, its recipe, and the model with the same weights in float32."""
    folder = tmp_path_factory.mktemp("stored")
    types = (*CODE_KINDS, "BF16")
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
    stored = write_gguf(save(folder / "model", "llama", **wide, head_dim=64), folder / "target.gguf", types)
    reference = save_reference(folder / "model", stored, folder / "reference")
    write_gguf(save(folder / "small", "llama", num_hidden_layers=1), folder / "draft.gguf", ("Q8_0", "Q4_0"))
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCOMPILE_CACHE_DIR", str(folder / "cache"))
        build(make_plan(load_recipe(folder / "recipe.yaml")), folder / "bundle")
    return folder, AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32, attn_implementation="eager")


@pytest.mark.builds(1)
def test_every_code_is_kept(made):
    folder, _ = made
    proof = open_bundle(folder / "bundle").proof
    rows = [row for row in proof["graphs"] if row["level"] == "weights against the model's"]
    assert [row["graph"] for row in rows] == ["verify", "draft"]
    assert all(row["kept"] == row["weights"] > 5 for row in rows)
    found = set(operators_of(folder / "bundle/graphs/verify.onnxruntime-cpu.stored.onnx"))
    assert {"LinearBlocks4", "LinearBlocks8", "LinearBFloat16", "EmbedBlocks4"} <= found


def test_tokens_are_those_of_the_target_alone_and_nearly_those_of_floats(made):
    folder, model = made
    with Bundle.open(folder / "bundle") as bundle:
        speculative, alone = (
            bundle.generate(PROMPT, max_new_tokens=24, ignore_eos=True, logprobs=True, autoregressive=way)
            for way in (False, True)
        )
    assert speculative.token_ids == alone.token_ids
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    assert alone.logprobs[0] == pytest.approx(float(wanted[alone.token_ids[0]]), abs=0.05)


@needs_library
@pytest.mark.parametrize("name", CODE_KINDS)
def test_rows_of_a_table_are_what_the_file_says(name, tmp_path):
    """Compare all bits with the package gguf, on the kernels and on ONNX Runtime's own."""
    kind, tokens, depth = CODE_KINDS[name], 37, 256
    weight = np.random.default_rng(1).standard_normal((tokens, depth)).astype(np.float32)
    data = blocks_of(weight, gguf.GGMLQuantizationType[name])
    (tmp_path / "blocks").write_bytes(data.tobytes())
    stored = Blocks(opened(tmp_path / "blocks"), 0, (tokens, depth), name, lambda: "")
    numbers, scales, offsets = (each.make() for each in code_fields(kind, stored.block_codes, depth, tokens))
    assert (offsets is layouts.NO_OFFSETS) == (not kind.has_offsets)
    ids = np.array([[0, 36, 15], [16, 16, 31]])
    model = graph(
        f"EmbedBlocks{kind.bits}", {"ids": None, "numbers": numbers, "scales": scales, "offsets": offsets},
        feeds={"ids": np.int64}, columns=tokens, depth=depth, block_size=kind.block_size, zero_point=kind.zero_point,
    )  # fmt: skip
    wanted = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).reshape(tokens, depth)[ids]
    (found,) = KernelRuns(model).run({"ids": ids})
    same_bits(found, wanted, "the kernels and the package gguf")
    (found,) = run_bodies(model, {"ids": ids})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.sweep("two builds of one graph, with their proofs; the codes are in the light tests")
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_codes_of_experts_are_kept(tmp_path, monkeypatch, native_library, onnxruntime_library, name):
    """Give the same bits for every window, one thread and two, in both runtimes; nearly the tokens of floats."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    stored = write_gguf(save(tmp_path / "model", name, **MODELS[name]), tmp_path / "target.gguf", ("Q8_0", "Q4_0"))
    write_gguf(save(tmp_path / "small", "llama", num_hidden_layers=1), tmp_path / "draft.gguf", ("Q8_0", "Q4_0"))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / "bundle")
    row = next(each for each in open_bundle(tmp_path / "bundle").proof["graphs"] if "weights" in each["level"])
    assert row["kept"] == row["weights"] > 16
    found = []
    for threads in (1, 2):
        with Bundle.open(tmp_path / "bundle", threads=threads) as bundle:
            for way in (False, True):
                options = {"ignore_eos": True, "logprobs": True, "autoregressive": way}
                made = bundle.generate(PROMPT, max_new_tokens=24, **options)
                found.append((made.token_ids, made.logprobs))
    assert all(each == found[0] for each in found)
    both = SideBySide(tmp_path / "bundle", native_library, onnxruntime_library)
    (generation,) = both.check([PROMPT], max_new_tokens=24, ignore_eos=True)
    assert generation.token_ids == found[0][0]
    reference = save_reference(tmp_path / "model", stored, tmp_path / "reference")
    model = AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    tokens, logprobs = found[0]
    assert logprobs[0] == pytest.approx(float(wanted[tokens[0]]), abs=0.05)
