"""Bundles of GGUF files: the tokens of transformers on the same weights, with a draft model in GGUF beside them."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from speccompile.bundle.reader import open_bundle
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests.gguf_files import MODELS, qwen_with_mtp, save, save_reference, write_gguf
from tests.gguf_heads import write_head
from tests.heads import dflash
from tests.heads.eagle3 import eagle3

pytestmark = pytest.mark.builds(2)

PROMPT = [5, 9, 20, 31, 7, 77, 13]
NEW = 24
RECIPE = """
name: gguf
target: {model: target.gguf}
drafter: {kind: model, model: drafter, tokens: 2}
cache: {max_length: 64, prefill_chunk: 16}
prove: {max_new_tokens: 8}
"""


@pytest.mark.sweep("two graphs each, with their proof", but=["mistral"])
@pytest.mark.parametrize("name", MODELS)
def test_a_bundle_gives_the_tokens_of_transformers(tmp_path, monkeypatch, name):
    kind, types = name.split()[0], ("Q4_0", "F16", "Q8_0", "BF16", "F32")
    stored = write_gguf(save(tmp_path / "model", kind, **MODELS[name]), tmp_path / "target.gguf", types)
    reference = save_reference(tmp_path / "model", stored, tmp_path / "reference")
    (tmp_path / "drafter").mkdir()
    write_gguf(save(tmp_path / "small", "llama", num_hidden_layers=1), tmp_path / "drafter" / "m.gguf", ("Q8_0",))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    plan = make_plan(load_recipe(tmp_path / "recipe.yaml"))
    bundle = Bundle.open(build(plan, tmp_path / "bundle"))
    again = build(plan, tmp_path / "again")  # all of it from the cache
    assert (again / "hashes.json").read_bytes() == (tmp_path / "bundle/hashes.json").read_bytes()
    model = AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32, attn_implementation="eager")
    model.generation_config.eos_token_id = None
    expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    found = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True)
    assert found.token_ids == expected[0, len(PROMPT) :].tolist()


@pytest.mark.sweep("two builds of one graph each, with their proofs; what is read is in the light tests")
@pytest.mark.parametrize("precision", ["float32", "stored"])
def test_layers_of_multi_token_prediction_draft(tmp_path, monkeypatch, precision):
    """Draft by the target's own layers in the file, and keep its other codes as they are."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    _, stored = qwen_with_mtp(tmp_path)
    (tmp_path / "recipe.yaml").write_text(
        "name: gguf\ntarget: {model: model.gguf}\ndrafter: {kind: mtp, tokens: 2}\n"
        "cache: {max_length: 64, prefill_chunk: 16}\nprove: {max_new_tokens: 8}\n"
        f"precision: {{target: {precision}}}\n"
    )
    plan = make_plan(load_recipe(tmp_path / "recipe.yaml"))
    assert plan.drafter.head.dialect == "Qwen 3.5"
    bundle = Bundle.open(build(plan, tmp_path / "bundle"), threads=1)
    found = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, adaptive=False).token_ids
    alone = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, autoregressive=True)
    assert found == alone.token_ids
    if precision == "float32":
        reference = save_reference(tmp_path / "model", stored, tmp_path / "reference")
        model = AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32, attn_implementation="eager")
        expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False, eos_token_id=None)
        assert found == expected[0, len(PROMPT) :].tolist()


HEADS = {
    "eagle3": lambda folder, target: eagle3(folder, target, boundaries=(1, 2, 2), draft_size=60, width=64),
    "dflash": lambda folder, target: dflash.zlab(folder, target, is_causal=False),
    "dspark": lambda folder, target: dflash.specforge(
        folder, target, own={"is_causal": False, "sample_from_anchor": True}
    ),
}


def write_pair(folder, kind, *types):
    """Write a target, and a head for it as a folder and as a GGUF file. types: of the file's matrices."""
    HEADS[kind](folder / "folder", AutoConfig.from_pretrained(save(folder / "target", "llama")))
    write_head(folder / "folder", folder / "head.gguf", "eagle3" if kind == "eagle3" else "dflash", *types)


@pytest.mark.sweep("a build of a graph, with its proof; what is kept is in the light tests")
@pytest.mark.parametrize("kind", HEADS)
def test_codes_of_heads_are_kept(tmp_path, monkeypatch, kind):
    """Keep the codes of a head beside a target in floats: the tokens stay the target's."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    write_pair(tmp_path, kind, "Q8_0")
    (tmp_path / "recipe.yaml").write_text(
        "name: head\ntarget: {model: target}\ndrafter: {model: head.gguf, tokens: 3}\nprecision: {drafter: stored}\n"
        "cache: {max_length: 64, prefill_chunk: 16}\nprove: {max_new_tokens: 8}\n"
    )
    build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / "bundle")
    rows = [row for row in open_bundle(tmp_path / "bundle").proof["graphs"] if "weights" in row["level"]]
    assert [row["precision"] for row in rows] == ["float32", "stored"]
    assert all(row["kept"] == row["weights"] > 8 for row in rows)
    with Bundle.open(tmp_path / "bundle") as bundle:
        ours = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, adaptive=False)
        alone = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, autoregressive=True)
    assert ours.token_ids == alone.token_ids


@pytest.mark.sweep("two builds of one graph each, with their proofs; what is read is in the light tests")
@pytest.mark.parametrize("kind", HEADS)
def test_heads_draft_as_those_of_their_folders(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    write_pair(tmp_path, kind)
    found = []
    for name in ("folder", "head.gguf"):
        (tmp_path / "recipe.yaml").write_text(
            f"name: head\ntarget: {{model: target}}\ndrafter: {{model: {name}, tokens: 3}}\n"
            "cache: {max_length: 64, prefill_chunk: 16}\nprove: {max_new_tokens: 8}\n"
        )
        bundle = Bundle.open(build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / f"bundle-{name}"))
        ours = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, adaptive=False)
        alone = bundle.generate(PROMPT, max_new_tokens=NEW, ignore_eos=True, autoregressive=True)
        assert ours.token_ids == alone.token_ids
        found.append((ours.token_ids, ours.path_lengths))
    assert found[0] == found[1]
