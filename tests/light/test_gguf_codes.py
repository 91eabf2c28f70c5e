"""Blocks of weights in GGUF files: rows and columns in another order, and experts whose matrices are joined."""

import json

import numpy as np
import pytest
from transformers.integrations.gguf.gguf_conversion_mapping import TiledToGroupedRows

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.gguf.block_types import CODE_KINDS, joined_kind
from speccompile.compiler.models.load import load_model, read_model
from speccompile.compiler.weights.gguf.weight import ValueTiles, codes_at, codes_in
from speccompile.compiler.weights.stored import Codes, in_kind
from tests.gguf_files import MODELS, describe, save


@pytest.mark.parametrize("head", [None, 1])
def test_heads_of_values_lie_as_transformers_reads_them(head):
    """llama.cpp's order of Qwen 3.5's heads, by the operation with which transformers undoes it."""
    size = head or 4
    keys, own, before = 2, 3, 8
    expected = TiledToGroupedRows(keys, own, size).permutation.numpy()
    found = ValueTiles(keys, own, size, before).places(np.arange(before + keys * own * size))
    np.testing.assert_array_equal(found, np.concatenate([np.arange(before), before + expected]))


def test_codes_of_reordered_rows_and_columns_are_their_numbers(tmp_path):
    folder = save(tmp_path / "model", "qwen3_5_text", **MODELS["qwen3_5_text"])
    described, _ = describe(folder, tmp_path / "model.gguf", types=("Q4_1", "Q8_0", "Q5_0"))
    seen = set()
    for name, tensor in read_model(described)[1].items():
        source = tensor.source
        if source.code_kind is None:
            continue
        seen.add(name.rpartition(".layers.0.")[2])
        for part in (slice(0, len(source.rows(slice(0, source.shape[0])))), slice(1, 3)):
            numbers, scales, offsets = source.block_codes(part)
            wide = [None if each is None else each.repeat(source.code_kind.block_size, 0) for each in (scales, offsets)]
            found = numbers.astype(np.float32) * wide[0] + (0 if wide[1] is None else wide[1])
            np.testing.assert_allclose(found.T, source.rows(part), rtol=1e-6, atol=1e-7)
        assert source.codes_place is not None
        np.testing.assert_array_equal(codes_at(source_file(source), source.codes_place).read_all(), source.read_all())
    assert {"linear_attn.out_proj.weight", "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_b.weight"} <= seen


@pytest.mark.parametrize(("name", "type_", "gates"), [
    ("qwen3_moe", "Q8_0", None), ("qwen3_moe", "Q4_1", None), ("gpt_oss", "Q8_0", None), ("qwen3_moe", "Q8_0", "Q4_1"),
    ("qwen3_moe", "Q4_0", "Q5_0"),
])  # fmt: skip
def test_codes_of_experts_are_their_numbers(tmp_path, name, type_, gates):
    """Include those of GPT-OSS, which are MXFP4, and lie transposed in transformers."""
    folder = save(tmp_path / "model", name, **MODELS[name])
    described, _ = describe(folder, tmp_path / "model.gguf", types=(type_,), gates=gates)
    assert read_checkpoint(described)[1].has_codes
    weights = load_model(described, 64).named_parameters()
    stacked = {name: each.source for name, each in weights if ".experts." in name and each.dim() == 3}
    assert {name.rpartition(".")[2] for name in stacked} == {"gate_up_proj", "down_proj"}
    for source in stacked.values():
        again = codes_in(lambda _: source_file(source), json.loads(json.dumps(source.codes_place)))  # noqa: B023
        for expert in (0, 3):
            for weight in (source.select(expert), again.select(expert)):
                rows = weight.transpose((1, 0)) if name == "gpt_oss" else weight
                kind = rows.code_kind
                joined = gates is not None and rows.shape == (64, 64)  # gate and up, not down
                expected = "+".join(sorted({gates, type_})) if joined else type_
                assert kind.name == ("MXFP4" if name == "gpt_oss" else expected)
                for part in (slice(0, rows.shape[0]), slice(3, 20)):
                    numbers, scales, offsets = rows.block_codes(part)
                    wide = [None if each is None else each.repeat(kind.block_size, 0) for each in (scales, offsets)]
                    found = numbers.astype(np.float32) * wide[0] + (0 if wide[1] is None else wide[1])
                    np.testing.assert_array_equal(found.T, rows.rows(part))


def test_the_smaller_blocks_hold_both_kinds_of_codes():
    """Convert a gate in Q4_K beside an up in Q6_K: the first part of every pair has the scale and offset of both."""
    joined = joined_kind([CODE_KINDS["Q6_K"], CODE_KINDS["Q4_K"]])
    assert (joined.name, joined.bits, joined.block_size, joined.has_offsets) == ("Q4_K+Q6_K", 8, 16, True)
    scales = np.array([[2.0], [3.0]], np.float32)
    found = in_kind(Codes(np.zeros((64, 1), np.int8), scales, scales), CODE_KINDS["Q4_K"], joined)
    np.testing.assert_array_equal(found.scales[:, 0], [2, 2, 3, 3])
    np.testing.assert_array_equal(found.offsets[:, 0], [2, 2, 3, 3])


def test_gates_in_floats_beside_blocks_have_no_codes(tmp_path):
    """Gate and up are one weight in transformers."""
    described, _ = describe(
        save(tmp_path / "model", "qwen3_moe", **MODELS["qwen3_moe"]), tmp_path / "model.gguf", types=("Q8_0",),
        gates="F16",
    )  # fmt: skip
    assert not read_checkpoint(described)[1].has_codes


def source_file(source):
    while hasattr(source, "sources"):
        source = source.sources[0]
    return source.file
