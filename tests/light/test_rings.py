"""Rings without a build: windows of configs, what a plan decides and refuses, and how far back a ring reaches."""

import pytest
from transformers import AutoConfig

from speccompile.compiler.checkpoints.windows import PATTERNS, attention_windows
from speccompile.errors import RecipeError
from speccompile.plan.caches import CachePlan, spare_rows
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.cache_sizes import cache_size, ring_rows
from speccompile.runtime.rounds.rings import RingReach
from tests.light.fake_bundle import toy_manifest

NUMBERS = {"num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 16, "head_dim": 8}
GEMMA = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "max_position_embeddings": 4096}
SLIDING = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 64}


@pytest.mark.parametrize("kind", PATTERNS)
def test_windows_of_configs_without_a_list_are_those_of_transformers(kind):
    if kind == "gemma3":
        pytest.skip("a config with a text decoder inside, whose type is gemma3_text")
    config = AutoConfig.for_model(kind, num_hidden_layers=12)
    expected = tuple(config.sliding_window if each == "sliding_attention" else 0 for each in config.layer_types)
    written = {"model_type": kind, "sliding_window": config.sliding_window}
    assert attention_windows(written, 12) == expected
    assert attention_windows(written | {"layer_types": config.layer_types}, 12) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 9}, (9, 9)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": False}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 1}, (0, 9)),
        ({"model_type": "exaone4", "sliding_window": 9, "sliding_window_pattern": "LG"}, (9, 0)),
        ({"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": 5}, (5, 0)),
        ({"layer_types": ["linear_attention"], "sliding_window": 9}, (0, 0)),
        ({"model_type": "llama", "sliding_window": 9}, (0, 0)),
    ],
)
def test_windows_of_other_configs(config, expected):
    assert attention_windows(config, 2) == expected


@pytest.fixture
def planned(make_recipe, make_checkpoint, tmp_path):
    """Return a function that plans a target, three of whose four layers see 64 tokens."""
    make_checkpoint(tmp_path / "sliding", **GEMMA, **NUMBERS, **SLIDING)
    recipe = make_recipe(
        target={"model": "sliding"}, drafter={"kind": "prompt_lookup", "tokens": 4},
        cache={"max_length": 2048, "prefill_chunk": 32},
    )  # fmt: skip
    return lambda *overrides: make_plan(load_recipe(recipe, list(overrides)))


def test_rings_are_the_default_where_they_save_memory(planned):
    plan, full = planned(), planned("cache.sliding=full")
    assert plan.caches == CachePlan(sliding="ring")
    assert plan.to_json()["caches"]["sliding"] == "ring"
    assert full.caches == CachePlan()
    assert "caches" not in full.to_json()
    assert any("cache.sliding: full keeps all rows" in note for note in plan.notes)
    spare, row = spare_rows(32, 4), 2 * 8 * 4
    assert spare == 32 + 16
    assert ring_rows(plan) == [64 + spare] * 3
    assert cache_size(full).of(2048) == 4 * row * (2048 + spare)
    assert cache_size(plan).of(2048) == row * (2048 + spare) + 3 * row * (64 + spare)
    fits = cache_size(plan).longest(1e6)
    assert cache_size(plan).of(fits) <= 1e6 < cache_size(plan).of(fits + 1)
    assert planned("cache.max_length=64", "cache.prefill_chunk=32").caches == CachePlan(), "no window is shorter"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["cache.sliding=rign"], "cache.sliding: received 'rign', which is unknown, expected full or ring\ndid you"),
        (["cache.ring_rows=100"], "cache.ring_rows: received 100, expected 112 or more: a window of 64 tokens, and 48"),
        (
            ["drafter.tokens=null", "drafter.tree=[2, 2, 2, 2]", "cache.prefill_chunk=8", "cache.ring_rows=112"],
            "cache.ring_rows: received 112, expected 128 or more: a window of 64 tokens, and 64 for the widest run",
        ),
        (["cache.sliding=full", "cache.ring_rows=900"], "cache.ring_rows: received 900, expected it only with cache."),
        (
            ["engines=[{backend: onnxruntime, provider: cuda}]", "cache.sliding=ring", "precision.target=float16"],
            "received 'ring', which the engine 'onnxruntime-cuda-float16' (onnxruntime on cuda) cannot do, expected",
        ),
        (
            ["target.model=target", "cache.max_length=64", "cache.sliding=ring"],
            "no layer of which sees fewer than 64 tokens, which is cache.max_length, expected 'full'",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(planned, overrides, said):
    with pytest.raises(RecipeError) as caught:
        planned(*overrides)
    assert said in f"{caught.value}\n{caught.value.hint}"


def test_engines_on_gpus_keep_full_caches(planned):
    on_gpu = "engines=[{backend: onnxruntime, provider: cuda}]", "precision.target=float16"
    assert planned(*on_gpu).caches == CachePlan()


def test_more_rows_reach_further_back(planned):
    plan = planned("cache.ring_rows=500")
    assert ring_rows(plan) == [500] * 3
    assert planned("cache.ring_rows=5000").caches.ring_rows == 5000
    assert ring_rows(planned("cache.ring_rows=5000")) == [], "no larger than a full cache"


def test_a_ring_holds_what_nobody_has_overwritten():
    """Compare with a ring that is written row by row."""
    rows, window = 40, 9
    reach = RingReach(toy_manifest())
    assert not reach
    assert reach.holds(1000, 3)
    reach.sizes, reach._room = (rows,), rows - window
    assert str(reach) == "ring of 40 rows"
    for written in range(120):
        held = {position % rows: position for position in range(written)}
        for position in range(written + 1):
            read = range(max(0, position - window + 1), position)
            is_there = all(held[each % rows] == each for each in read)
            assert is_there or not reach.holds(written, position)
            assert not is_there or reach.holds(written, position + 1) or position < window
