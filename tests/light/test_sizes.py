"""What weights take in each form, beside the constants that the quantizers declare for them."""

from math import prod

import pytest

from speccompile.compiler.checkpoints.gguf.block_types import CODE_KINDS
from speccompile.compiler.checkpoints.quantization import Quantization
from speccompile.compiler.lower.lowering_targets import LOWERING_TARGETS
from speccompile.compiler.lower.quantize.formats import FORMATS, code_fields
from speccompile.plan.plan import EnginePlan, PrecisionPlan
from speccompile.recipe.sizes import HEAD, LAYER, OTHER, TABLE, Weight, _packing, find_weights, layout_of, stored_bytes

SHAPES = [(64, 32), (4096, 14336), (4000, 250), (100, 17)]
"""[K, N]"""


@pytest.mark.parametrize(("depth", "columns"), SHAPES)
@pytest.mark.parametrize(
    ("word", "block_size"), [("float32", 0), ("bfloat16", 0), ("int8", 0), ("int4", 32), ("int4", 128)]
)
def test_bytes_for_the_kernels_are_those_of_their_constants(depth, columns, word, block_size):
    fields = FORMATS[word].fields(lambda: None, depth, columns, block_size)
    expected = sum(prod(field.shape) * field.dtype.itemsize for field in fields)
    assert _packing("native", word, block_size, LAYER).bytes_of(Weight(LAYER, columns, depth)) == expected


@pytest.mark.parametrize("name", CODE_KINDS)
def test_bytes_of_codes_are_those_of_their_constants(name):
    kind, (depth, columns) = CODE_KINDS[name], (4096, 250)
    fields = code_fields(kind, lambda: None, depth, columns)
    expected = sum(
        prod(field.shape) * field.dtype.itemsize
        for field in fields
        if kind.has_offsets or len(field.shape) > 3 or field.suffix == ".scales"
    )  # a single offset stands for none
    assert stored_bytes([Weight(LAYER, columns, depth, name)], "native", "stored", 0, tied=False) == expected


def engine(backend, provider):
    return EnginePlan(0, "one", backend, provider, None, PrecisionPlan("int4", None, 32))


@pytest.mark.parametrize(("backend", "provider"), LOWERING_TARGETS)
def test_layouts_are_those_of_the_forms(backend, provider):
    assert layout_of(engine(backend, provider)) == LOWERING_TARGETS[backend, provider].weights


LLAMA = {
    "model.embed_tokens.weight": (TABLE, 100),
    "lm_head.weight": (HEAD, 100),
    "model.layers.0.self_attn.q_proj.weight": (LAYER, 8),
    "model.layers.0.input_layernorm.weight": (OTHER, None),
}


def test_weights_are_known_by_their_names_and_shapes():
    tensors = [(name, "BF16", (16,) if rows is None else (rows, 16)) for name, (_, rows) in LLAMA.items()]
    others = [("transformer.wpe.weight", "F32", (1024, 16)), ("model.layers.0.mlp.experts.up", "F16", (4, 8, 16)),
              ("model.layers.0.attn.bias", "U8", (1, 1, 64, 64)), ("d2t", "I64", (100,))]  # fmt: skip
    found = find_weights([*tensors, *others], vocabulary_size=100)
    assert [weight.role for weight in found] == [role for role, _ in LLAMA.values()] + [OTHER, LAYER]
    assert [weight.size for weight in found] == [1600, 1600, 128, 16, 16384, 512]


@pytest.mark.parametrize(
    ("method", "tensors"),
    [
        # a matrix of 64 inputs and 48 outputs, as each method stores it
        ("gptq", [("x.qweight", "I32", (8, 48)), ("x.qzeros", "I32", (2, 6)), ("x.scales", "F16", (2, 48)),
                  ("x.g_idx", "I32", (64,))]),
        ("awq", [("x.qweight", "I32", (64, 6)), ("x.qzeros", "I32", (2, 6)), ("x.scales", "F16", (2, 48))]),
        ("compressed-tensors", [("x.weight_packed", "I32", (48, 8)), ("x.weight_scale", "BF16", (48, 2)),
                                ("x.weight_shape", "I64", (2,))]),
        ("fp8", [("x.weight", "F8_E4M3", (48, 64)), ("x.weight_scale_inv", "F32", (1, 1))]),
        ("mxfp4", [("x_blocks", "U8", (1, 48, 2, 16)), ("x_scales", "U8", (1, 48, 2))]),
    ],
)  # fmt: skip
def test_a_quantized_weight_counts_by_its_numbers(method, tensors):
    quantization = Quantization(method, method, None if method in ("fp8", "mxfp4") else 4)
    (weight,) = find_weights(tensors, 1000, quantization)
    assert (weight.role, weight.size) == (LAYER, 64 * 48)


def test_eight_bits_are_not_counted_as_four():
    (weight,) = find_weights([("x.qweight", "I32", (16, 48))], 1000, Quantization("gptq", "gptq", 8))
    assert weight.size == 64 * 48


@pytest.mark.parametrize(
    ("layout", "word", "tied", "expected"),
    [
        # 100 columns are filled up to 112, seven tiles of sixteen
        ("native", "float32", False, 4 * (6400 + 112 * 64 + 4096 + 64)),
        ("native", "float32", True, 4 * (6400 + 4096 + 64)),
        ("native", "int8", True, 112 * (64 + 4) + 64 * (64 + 4) + 4 * 64),
        ("qdq", "float16", True, 2 * (6400 + 4096 + 64)),
        # elsewhere than on a CPU the table stays a float, and a tied head has a copy in 8 bits
        ("qdq", "int8", True, 2 * 6400 + (6400 + 2 * 100) + (4096 + 2 * 64) + 2 * 64),
        ("qdq", "int8", False, 2 * 6400 + (6400 + 2 * 100) + (4096 + 2 * 64) + 2 * 64),
        ("matmul_nbits", "int8", True, 2 * 6400 + 6400 * 34 / 32 + 4096 * 34 / 32 + 2 * 64),
    ],
)
def test_what_a_model_takes(layout, word, tied, expected):
    weights = [Weight(TABLE, 100, 64), Weight(HEAD, 100, 64), Weight(LAYER, 64, 64), Weight(OTHER, 64, 1)]
    assert stored_bytes(weights, layout, word, 32, tied=tied) == expected
