"""What a build needs, estimated from headers; and the refusal where there is less. Weights of real size lie in sparse
files, which take no room."""

import errno
import json
import struct
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import yaml

from speccompile.errors import BuildError, CheckpointError, ProofError
from speccompile.machine.system import MemoryLimit
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import TENSORRT_KERNEL_BYTES, ResourceEstimate, estimate_resources
from speccompile.recipe.resources import (
    AvailableResources,
    check_resources,
    find_resources,
    insufficient_resources,
    with_estimate,
)
from tests.tokenizer_pairs import byte_level

RTX = {"backend": "tensorrt_rtx", "provider": "cuda"}
SIZES = {"8b": (4096, 14336, 32, 32, 8, 128256, False), "1b": (2048, 8192, 16, 32, 8, 128256, True)}
"""hidden, intermediate, layers, heads, heads of keys and values, tokens, tied"""


def shapes(hidden, intermediate, layers, heads, kv_heads, tokens, tied):
    keys = hidden // heads * kv_heads
    layer = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden), "mlp.down_proj": (hidden, intermediate),
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
    }  # fmt: skip
    found = {f"model.layers.{n}.{name}.weight": shape for n in range(layers) for name, shape in layer.items()}
    found |= {"model.embed_tokens.weight": (tokens, hidden), "model.norm.weight": (hidden,)}
    return found if tied else found | {"lm_head.weight": (tokens, hidden)}


def write(folder: Path, size: str) -> Path:
    """Return a Llama of a size in SIZES, in bfloat16."""
    hidden, _, layers, heads, kv_heads, tokens, tied = SIZES[size]
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": tokens, "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192, "tie_word_embeddings": tied,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in shapes(*SIZES[size]).items():
        start, end = end, end + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return folder


@pytest.fixture
def needs(tmp_path):
    """Return what a recipe for an 8 B target and a 1 B drafter needs."""
    for size in SIZES:
        write(tmp_path / size, size)

    def needs(**keys) -> ResourceEstimate:
        recipe = {"name": "big", "target": {"model": "8b"}, "cache": {"max_length": 2048}} | keys
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        return estimate_resources(make_plan(load_recipe(tmp_path)))

    return needs


def numbers(size, *, layers: bool) -> int:
    """Return weights of the layers' matrices, or of the table and the head."""
    return sum(
        prod(shape)
        for name, shape in shapes(*SIZES[size]).items()
        if len(shape) == 2 and name.startswith("model.layers") == layers
    )


INT4 = 0.5 + 3 / 32  # bytes of a weight in blocks of 32: scales in float16 and zero points of a byte


def test_the_bundle_of_a_large_model(needs):
    found = needs(precision={"target": "int4", "block_size": 32})
    assert found.bundle == pytest.approx(numbers("8b", layers=True) * INT4 + numbers("8b", layers=False), rel=0.01)
    assert found.mapped == 2 * sum(prod(shape) for shape in shapes(*SIZES["8b"]).values())
    assert found.temporary == 0
    assert 1e9 < found.memory < 4e9


def test_memory_grows_with_caches_not_with_weights(needs):
    """Count 32 layers of 8 heads of 128 numbers, keys and values in float32."""
    short, long = (needs(cache={"max_length": length, "prefill_chunk": 256}) for length in (1024, 8192))
    assert long.memory - short.memory == 2 * 4 * (8192 - 1024) * 2 * 32 * 8 * 128
    assert needs(target={"model": "1b"}, cache={"max_length": 1024, "prefill_chunk": 256}).memory < short.memory
    assert needs(precision={"target": "int4"}).memory == needs().memory


def test_a_drafter_comes_on_top(needs):
    alone = needs(precision={"target": "int4", "block_size": 32})
    pair = needs(
        precision={"target": "int4", "drafter": "int4", "block_size": 32}, drafter={"kind": "model", "model": "1b"}
    )
    expected = numbers("1b", layers=True) * INT4 + numbers("1b", layers=False)  # whose head is its table
    assert pair.bundle - alone.bundle == pytest.approx(expected, rel=0.01)


def test_each_engine_of_tensorrt_holds_the_weights(needs):
    one, three = (
        needs(engines=[RTX | {"compute_capability": found, "precision": {"target": "float16"}}])
        for found in (["8.9"], ["8.6", "8.9", "12.0"])
    )
    size = 2 * (numbers("8b", layers=True) + numbers("8b", layers=False))
    assert one.bundle == pytest.approx(size + 2 * TENSORRT_KERNEL_BYTES, rel=0.01)
    assert three.bundle == pytest.approx(3 * one.bundle, rel=0.01)
    assert one.temporary == three.temporary == pytest.approx(size, rel=0.01)  # what all of them are built from


def test_engines_that_are_deferred_share_what_they_are_built_from(needs):
    engine = RTX | {"compute_capability": ["8.6", "8.9"], "precision": {"target": "float16"}}
    built, deferred = needs(engines=[engine]), needs(engines=[engine | {"defer": True}])
    assert deferred.bundle == pytest.approx(built.bundle / 2, rel=0.01)
    assert (built.temporary > 0, deferred.temporary) == (True, 0)


def test_a_fused_step_holds_the_target_again(needs):
    drafter = {"kind": "model", "model": "1b"}
    engines = [RTX | {"compute_capability": "8.9", "precision": {"target": "float16", "drafter": "float16"}}]
    separate, fused = (needs(drafter=drafter, engines=engines, graphs=graphs) for graphs in ("separate", "fused"))
    target = 2 * (numbers("8b", layers=True) + numbers("8b", layers=False))
    assert fused.bundle - separate.bundle == pytest.approx(target, rel=0.01)


def test_layers_that_draft_again_are_left_out_of_the_bundle(needs):
    """Count layers that are first written with the drafter's graph."""
    alone, skipping = needs(), needs(drafter={"kind": "layer_skip", "layers": [0, 1, 2, 3]})
    assert skipping.bundle == alone.bundle
    expected = 2 * (numbers("8b", layers=True) * 4 / 32 + numbers("8b", layers=False))  # bfloat16, as stored
    assert skipping.temporary == pytest.approx(expected, rel=0.01)


NEEDS = ResourceEstimate(bundle=6 * 10**9, temporary=2 * 10**9, memory=3 * 10**9, mapped=16 * 10**9, reserved=10**9)
MACHINE = MemoryLimit("this machine's memory and swap", "memory", 25 * 10**9, "use a machine with more memory")
SHELL = MemoryLimit("`ulimit -v`", "address space", 19 * 10**9, "raise it: `ulimit -v unlimited`, in the same shell")


@pytest.fixture
def room(tmp_path):
    return AvailableResources(tmp_path, 10**12, (MACHINE,))


def test_what_is_enough_is_not_refused(room):
    check_resources(NEEDS, replace(room, disk=8 * 10**9, limits=(replace(MACHINE, size=3 * 10**9),)))


def test_a_little_less_is_told_and_not_refused(room):
    little = replace(room, disk=int(7.5e9), limits=(MACHINE, SHELL))
    check_resources(NEEDS, little)
    disk, space = map(str, insufficient_resources(NEEDS, little))
    assert disk == (
        f"not enough disk space in {room.folder}: received 7.5 GB free, expected about 8.0 GB: 6.0 GB for the "
        "bundle and 2.0 GB for files until it is done"
    )
    assert space == (
        "`ulimit -v` is too small: received 19.0 GB of address space, expected about 20.0 GB: 3.0 GB of memory, "
        "16.0 GB of files that are mapped, and 1.0 GB for libraries and threads"
    )


def test_a_disk_with_clearly_less_is_refused(room):
    with pytest.raises(
        BuildError, match=r"not enough disk space in .*: received 500 MB free, expected about 8\.0"
    ) as caught:
        check_resources(NEEDS, replace(room, disk=500 * 10**6))
    assert caught.value.hint == "free some disk space, or give an --output (output=..) on another disk"


def test_a_bundle_in_the_cache_is_told_the_variable_of_the_cache(room, monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    with pytest.raises(BuildError, match="not enough disk space") as caught:
        check_resources(NEEDS, replace(room, disk=0, folder=tmp_path.resolve() / "bundles" / "entry"))
    assert "set $SPECCOMPILE_CACHE_DIR to a folder on another disk" in caught.value.hint


def test_an_entry_of_the_cache_is_told_by_its_folder(tmp_path):
    entry = tmp_path / f".{'0' * 64}.1-00000000.part"
    entry.mkdir()
    assert find_resources(entry / "bundle").folder == tmp_path.resolve()


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (replace(MACHINE, size=2 * 10**9), "memory and swap is too small: received 2.0 GB of memory, expected about 3"),
        (
            replace(SHELL, size=4 * 10**9),
            "`ulimit -v` is too small: received 4.0 GB of address space, expected about 20",
        ),
    ],
)
def test_a_limit_of_memory_that_is_clearly_too_small_is_refused(room, limit, message):
    with pytest.raises(BuildError, match=message) as caught:
        check_resources(NEEDS, replace(room, limits=(MACHINE, limit)))
    assert caught.value.hint == limit.hint


def test_the_room_is_that_of_the_nearest_folder(tmp_path):
    room = find_resources(tmp_path / "not" / "there")
    assert room.folder == tmp_path
    assert room.disk > 0
    assert room.memory == min(limit.size for limit in room.limits) > 0


def test_a_disk_that_fills_up_is_told_with_figures(room):
    error = BuildError("the bundle could not be written to build/demo: No space left on device", hint="check")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    told = with_estimate(error, NEEDS, room)
    assert isinstance(told, BuildError)
    assert str(told).startswith(f"{error}: received ")
    assert str(told).endswith(
        f"free in {room.folder}, expected about 8.0 GB: 6.0 GB for the bundle and 2.0 GB for files until it is done"
    )


def test_memory_that_runs_out_is_told_with_figures(room):
    told = with_estimate(MemoryError("Unable to allocate 9 GiB"), NEEDS, room)
    assert isinstance(told, BuildError)
    assert str(told).startswith("memory ran out: Unable to allocate 9 GiB: received ")
    assert told.hint


def test_other_errors_stay_what_they_are(room):
    for error in (ProofError("a token differs"), PermissionError(errno.EACCES, "Permission denied"), KeyError("x")):
        assert with_estimate(error, NEEDS, room) is error


def test_slots_of_adapters_are_counted_once_for_every_layer(needs):
    """Rank 8 for queries of 4096 by 4096 and values of 4096 by 1024 in 32 layers: three slots, and the base's."""
    plain, slots = needs(), needs(adapters={"modules": ["q_proj", "v_proj"], "rank": 8, "slots": 3})
    assert slots.memory - plain.memory == 4 * (3 + 1) * 8 * 32 * (4096 + 4096 + 4096 + 1024)
    assert slots.disk == plain.disk


def test_prefixes_are_counted_by_their_rows(needs, tmp_path):
    """Count a row of the 8 B model: 8 heads of 128 keys and values in 32 layers."""
    byte_level().save(str(tmp_path / "8b" / "tokenizer.json"))
    (tmp_path / "system.txt").write_text("the quick brown fox " * 20)
    tokens = len(byte_level().encode("the quick brown fox " * 20).ids)
    plain, shipped = needs(), needs(prefixes=[{"name": "system", "prompt_file": "system.txt"}])
    assert shipped.bundle - plain.bundle == tokens * 4 * 2 * 8 * 128 * 32
    (tmp_path / "8b" / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="expected a tokenizer"):
        needs(prefixes=[{"name": "system", "prompt_file": "system.txt"}])
