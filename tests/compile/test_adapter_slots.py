"""Adapters that are chosen at run time, beside peft's unmerged models in float32."""

import json
import subprocess
from math import prod

import numpy as np
import peft
import pytest
import torch
from transformers import LlamaForCausalLM

from speccompile.compiler.build import build
from speccompile.errors import EngineError, UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import adapter_bytes
from speccompile.recipe.resources import gigabytes
from speccompile.runtime import Bundle
from speccompile.serving.batch.requests import BatchRequest
from speccompile.serving.batch.worker import BatchWorker
from speccompile.serving.http.fields import COMPLETIONS_URL
from tests import adapters
from tests.native.native_api import NativeBundle
from tests.native.native_errors import NativeError

pytestmark = pytest.mark.builds(3)

PROMPT = [5, 9, 20, 31, 7, 13]
NEW = 16
ALL = {"max_new_tokens": NEW, "ignore_eos": True, "top_logprobs": 64}
RECIPE = """
name: slots
target: {model: base}
drafter: {kind: model, model: base, tokens: 3}
adapters: {modules: [q_proj, v_proj, down_proj], rank: 8, slots: 2}
cache: {max_length: 64, prefill_chunk: 16, batch_size: 3}
prove: {max_new_tokens: 8}
"""
PLAIN = """
name: plain
target: {model: base}
drafter: {kind: none}
cache: {max_length: 64, prefill_chunk: 16, batch_size: 3}
prove: {max_new_tokens: 8}
"""
SETTINGS = {
    "one": {"target_modules": ["q_proj", "v_proj", "down_proj"]},
    "two": {"target_modules": ["q_proj", "down_proj"], "use_rslora": True, "rank_pattern": {"q_proj": 2}},
}


def _base(folder):
    return LlamaForCausalLM.from_pretrained(folder / "base", attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a base, two adapters for it, and bundles with slots and without."""
    folder = tmp_path_factory.mktemp("slots")
    adapters.write(folder, target_modules=["q_proj"])
    for seed, (name, settings) in enumerate(SETTINGS.items()):
        torch.manual_seed(seed)
        adapters.stirred(peft.get_peft_model(_base(folder), peft.LoraConfig(r=4, **settings))).save_pretrained(
            folder / name
        )
    for name, text in (("bundle", RECIPE), ("plain", PLAIN)):
        (folder / f"{name}.yaml").write_text(text)
        build(make_plan(load_recipe(folder / f"{name}.yaml")), folder / name)
    return folder


@pytest.fixture
def bundle(folder):
    with Bundle.open(folder / "bundle", threads=2) as opened:
        for name in SETTINGS:
            opened.load_adapter(name, folder / name)
        yield opened


def test_a_session_of_an_adapter_is_read_by_both_runtimes(
    folder, bundle, native_library, onnxruntime_library, tmp_path
):
    """Go on from a session with the adapter that wrote it, and with no other."""
    native = NativeBundle(folder / "bundle", library=native_library, onnxruntime=onnxruntime_library, threads=1)
    session, path = native.session(), tmp_path / "s"
    for name in ("two", "one"):
        session.load_adapter(name, folder / name)
        (ours,) = session.generate([PROMPT], max_new_tokens=6, adapter=name, adaptive=False)
        session.save(path)
        written = path.read_bytes()
        assert bundle.generate(PROMPT, adapter=name, max_new_tokens=6, adaptive=False).token_ids == ours["token_ids"]
        bundle.save_session(path)
        assert path.read_bytes() == written
        longer = [*PROMPT, *ours["token_ids"], 3]
        expected = bundle.generate(longer, adapter=name, max_new_tokens=6)
        assert session.load(path) == longer[:-2]
        (found,) = session.generate([longer], max_new_tokens=6, adapter=name)
        assert (found["token_ids"], found["cached_tokens"]) == (expected.token_ids, len(longer) - 2)
        session.load(path)
        (other,) = session.generate([longer], max_new_tokens=6)
        assert (other["token_ids"], other["cached_tokens"]) == (bundle.generate(longer, max_new_tokens=6).token_ids, 0)


def _numbers(generation):
    return generation.token_ids, generation.logprobs, generation.top_logprobs


@pytest.mark.parametrize("name", SETTINGS)
def test_an_adapter_gives_the_logits_and_tokens_of_peft(folder, bundle, name):
    model = peft.PeftModel.from_pretrained(_base(folder), folder / name).eval()
    expected = model.generate(
        input_ids=torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None
    )[0, len(PROMPT) :].tolist()
    found = bundle.generate(PROMPT, adapter=name, **ALL)
    assert found.token_ids == expected
    assert found.token_ids != bundle.generate(PROMPT, **ALL).token_ids
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + expected])).logits[0, len(PROMPT) - 1 : -1]
    theirs = torch.log_softmax(logits.double(), -1).numpy()
    ours = np.array([[value for _, value in sorted(best)] for best in found.top_logprobs])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_the_base_is_a_bundle_without_slots_bit_for_bit(folder, bundle):
    with Bundle.open(folder / "plain", threads=2) as plain:
        assert _numbers(bundle.generate(PROMPT, **ALL)) == _numbers(plain.generate(PROMPT, **ALL))
        assert not [t.name for graph in plain.manifest.graphs for t in graph.inputs if t.name.startswith("lora.")]
        with pytest.raises(UsageError, match="received it for a bundle without slots"):
            plain.load_adapter("one", folder / "one")


def test_rows_with_different_adapters_are_themselves_alone_bit_for_bit(bundle):
    chosen, prompts = ["two", None, "one"], [PROMPT, PROMPT[:4], PROMPT]
    together = bundle.generate_batch(prompts, adapter=chosen, **ALL)
    alone = [bundle.generate(p, adapter=name, **ALL) for p, name in zip(prompts, chosen, strict=True)]
    assert list(map(_numbers, together)) == list(map(_numbers, alone))


@pytest.mark.parametrize("name", [*SETTINGS, None])
def test_drafts_change_no_bit(bundle, name):
    speculative = bundle.generate(PROMPT, adapter=name, adaptive=False, **ALL)
    one_by_one = bundle.generate(PROMPT, adapter=name, autoregressive=True, **ALL)
    assert _numbers(speculative) == _numbers(one_by_one)
    assert speculative.rounds <= one_by_one.rounds


def test_a_service_shares_no_prefix_between_adapters(bundle):
    chosen = ["one", "two", None, "one", None, "two"]
    alone = [bundle.generate(PROMPT, adapter=name, max_new_tokens=NEW, ignore_eos=True).token_ids for name in chosen]
    cached = []
    with bundle.serve() as service:
        for name, expected in zip(chosen, alone, strict=True):
            (found,) = service.submit(PROMPT, adapter=name, max_new_tokens=NEW, ignore_eos=True).generations()
            assert found.token_ids == expected
            cached.append(found.cached_tokens)
        with pytest.raises(EngineError, match="this bundle serves requests"):
            bundle.unload_adapter("one")
    assert cached[0] == 0
    assert cached[1] == 0, "the first slot holds the text of the other adapter"
    assert len(PROMPT) - 1 in cached[3:], "the text of its own adapter is reused"


def test_lines_of_a_batch_file_choose_adapters_by_the_name_of_the_model(folder, bundle):
    bodies = [("slots:one", "one"), ("slots", None), ("slots:two", "two"), ("slots:gone", "gone")]
    fields = {"prompt": PROMPT, "max_tokens": NEW, "ignore_eos": True, "return_token_ids": True}
    lines = [
        BatchRequest(number, name, COMPLETIONS_URL, json.dumps(fields | {"model": name}).encode())
        for number, (name, _) in enumerate(bodies, 1)
    ]
    with BatchWorker.open(bundle, "slots") as worker:
        results = {each.line.custom_id: each for each in worker.run(lines)}
    for name, adapter in bodies[:3]:
        expected = bundle.generate(PROMPT, adapter=adapter, max_new_tokens=NEW, ignore_eos=True)
        assert results[name].body["choices"][0]["token_ids"] == expected.token_ids
    assert results["slots:gone"].status == 400


def test_a_session_belongs_to_its_adapter(bundle, tmp_path):
    file, kept = tmp_path / "one.session", {"max_new_tokens": 8, "ignore_eos": True}
    first = bundle.generate(PROMPT, adapter="one", session=file, **kept)
    longer = [*PROMPT, *first.token_ids, 3]
    expected = bundle.generate(longer, adapter="one", **kept).token_ids
    found = bundle.generate(longer, adapter="one", session=file, **kept)
    assert found.token_ids == expected
    assert found.cached_tokens >= len(PROMPT)
    for other in ("two", None):
        with pytest.raises(UsageError, match=r"received a session with the adapter .*, expected"):
            bundle.generate(longer, adapter=other, session=file, **kept)
        bundle.load_session(file)  # the next generation is not known yet
        found = bundle.generate(longer, adapter=other, **kept)
        assert found.cached_tokens == 0
        assert found.token_ids == bundle.generate(longer, adapter=other, **kept).token_ids


def test_an_adapter_is_unloaded_and_another_takes_its_slot(folder, bundle):
    with pytest.raises(UsageError, match="all 2 slots are taken"):
        bundle.load_adapter("three", folder / "one")
    two = bundle.generate(PROMPT, adapter="two", **ALL)
    bundle.unload_adapter("one")
    assert bundle.adapters == ["two"]
    with pytest.raises(UsageError, match="received 'one', expected the name of a loaded adapter"):
        bundle.generate(PROMPT, adapter="one")
    bundle.load_adapter("again", folder / "two")
    assert _numbers(bundle.generate(PROMPT, adapter="again", **ALL)) == _numbers(two)


OTHERS = {
    "int4": ("llama", ["q_proj", "down_proj"], "precision: {target: int4}"),
    "fused layers": ("gpt2", ["c_attn", "c_proj"], "graphs: fused"),
}


@pytest.mark.builds(4)
@pytest.mark.sweep("two further targets: the first tier has the same tests over one")
@pytest.mark.parametrize("case", OTHERS)
def test_other_targets(tmp_path, case):
    """Precisions and layouts: drafts and neighbours change no bit, and in float32 the tokens are peft's."""
    base, modules, text = OTHERS[case]
    model = adapters.write(tmp_path, base, target_modules=modules, fan_in_fan_out=base == "gpt2")
    drafter = "drafter: {kind: model, model: base, tokens: 2}" if "graphs" in text else "drafter: {kind: prompt_lookup}"
    (tmp_path / "recipe.yaml").write_text(
        f"name: other\ntarget: {{model: base}}\n{drafter}\nadapters: {{modules: {modules}, rank: 4, slots: 1}}\n"
        f"{text}\n"
        "cache: {max_length: 64, prefill_chunk: 16, batch_size: 2}\nprove: {max_new_tokens: 4}\n"
    )
    with Bundle.open(build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / "bundle")) as bundle:
        bundle.load_adapter("one", tmp_path / "adapter")
        found = bundle.generate(PROMPT, adapter="one", adaptive=False, **ALL)
        assert _numbers(found) == _numbers(bundle.generate(PROMPT, adapter="one", autoregressive=True, **ALL))
        both = bundle.generate_batch([PROMPT, PROMPT], adapter=[None, "one"], **ALL)
        assert _numbers(both[1]) == _numbers(found)
        assert _numbers(both[0]) == _numbers(bundle.generate(PROMPT, **ALL))
        assert both[0].token_ids != both[1].token_ids
    if "precision" not in text:
        given = torch.tensor([PROMPT])
        expected = model.generate(
            input_ids=given, max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None
        )
        assert found.token_ids == expected[0, len(PROMPT) :].tolist()


@pytest.fixture
def native(folder, native_library, onnxruntime_library):
    opened = NativeBundle(folder / "bundle", library=native_library, onnxruntime=onnxruntime_library, threads=2)
    return opened.session()


def test_the_runtime_in_cpp_gives_the_same_tokens(folder, bundle, native):
    for name in SETTINGS:
        native.load_adapter(name, folder / name)
    chosen, asked = ["two", None, "one"], {"max_new_tokens": NEW}
    wanted = bundle.generate_batch([PROMPT] * 3, adapter=chosen, **asked)
    found = native.generate([PROMPT] * 3, adapter=chosen, **asked)
    assert [each["token_ids"] for each in found] == [each.token_ids for each in wanted]
    assert len({tuple(each["token_ids"]) for each in found}) == 3
    (alone,) = native.generate([PROMPT], adapter="two", autoregressive=1, **asked)
    assert alone["token_ids"] == wanted[0].token_ids
    with pytest.raises(NativeError, match="all 2 slots are taken"):
        native.load_adapter("three", folder / "one")
    native.unload_adapter("one")
    with pytest.raises(NativeError, match="received 'one', expected the name of a loaded adapter"):
        native.generate([PROMPT], adapter="one", **asked)
    native.load_adapter("again", folder / "two")
    assert native.generate([PROMPT], adapter="again", **asked)[0]["token_ids"] == wanted[0].token_ids


REFUSED = {
    "DoRA": ({"use_dora": True}, "lora_magnitude_vector|use_dora"),
    "a module": ({"target_modules": ["k_proj"]}, "a change of .*k_proj, expected changes of the modules"),
    "a rank": ({"r": 9}, "received rank 9 .*, expected at most 8"),
    "saved modules": ({"modules_to_save": ["lm_head"]}, "received tensor '.*lm_head"),
    "a pattern": ({"alpha_pattern": {".*q_proj": 3}}, "alpha_pattern: '.*q_proj', expected names"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_runtime_in_cpp_refuses_by_name(folder, native, tmp_path, case):
    settings, message = REFUSED[case]
    changed = {"r": 4, "target_modules": ["q_proj"]} | settings
    peft.get_peft_model(_base(folder), peft.LoraConfig(**changed)).save_pretrained(tmp_path / "other")
    with pytest.raises(NativeError, match=message):
        native.load_adapter("other", tmp_path / "other")
    with pytest.raises(NativeError, match="expected the name of a loaded adapter"):
        native.generate([PROMPT], adapter="other")


@pytest.mark.parametrize("size", [0, 7, 100, -20])
def test_the_runtime_in_cpp_reads_nothing_beyond_a_damaged_file(folder, native, tmp_path, size):
    (tmp_path / "adapter_config.json").write_bytes((folder / "one/adapter_config.json").read_bytes())
    whole = (folder / "one/adapter_model.safetensors").read_bytes()
    (tmp_path / "adapter_model.safetensors").write_bytes(whole[:size])
    with pytest.raises(NativeError, match=r"adapter_model\.safetensors"):
        native.load_adapter("one", tmp_path)


def test_plan_and_both_inspects_say_what_the_slots_take(folder, bundle, native_build, command_line):
    """Compare the plan's estimate, from the checkpoint's headers, with the sizes in the graphs."""
    tensors = {each.name: each for graph in bundle.manifest.graphs for each in graph.inputs if "lora." in each.name}
    size = sum(4 * prod(each.shape) for each in tensors.values())
    plan = make_plan(load_recipe(folder / "bundle.yaml"))
    assert adapter_bytes(plan) == size
    line = "2 slots of rank 8 for q_proj, v_proj, down_proj, "
    assert line + gigabytes(size) in command_line("plan", folder / "bundle.yaml")[1]
    shown = command_line("inspect", folder / "bundle")[1]
    (row,) = [row for row in shown.splitlines() if line in row]
    assert row.split()[0] == "adapters"
    assert f"{size / 1e6:.2f} MB" in row
    native = subprocess.run(
        [native_build / "speccompile-native", "inspect", folder / "bundle"], capture_output=True, text=True, check=True
    )
    assert row in native.stdout.splitlines()
    assert "adapters " not in command_line("inspect", folder / "plain")[1]
