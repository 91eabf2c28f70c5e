"""What is simulated of a checkpoint is what its compiled loop does, round by round: the demo's shipped drafters."""

import json
import logging
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from speccompile.bundle.prompts import read_prompts
from speccompile.errors import CheckpointError, RecipeError
from speccompile.train.evaluate import (
    Answer,
    Checkpoint,
    DepthCounts,
    Run,
    SimulatedDecoding,
    differences,
    evaluate,
    run_checkpoint,
    simulate_rounds,
)
from speccompile.train.teacher import Teacher

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NEW_TOKENS = 64

DRAFTERS = {
    "model": ("demo", "drafter", 4, 2.3),
    "eagle3": ("demo-eagle3", "head", 4, 3.4),
    "medusa": ("demo-medusa", "head", 4, 1.7),
    "dflash": ("demo-dflash", "head", 7, 3.3),
}
"""Kind -> recipe, folder, drafts of a chain, and new tokens a round that all prompts together give at least."""


def checkpoint(kind: str) -> Checkpoint:
    recipe, folder, _, _ = DRAFTERS[kind]
    return Checkpoint(RECIPES / recipe, (), kind, RECIPES / recipe / folder)


@cache
def target() -> nn.Module:
    return AutoModelForCausalLM.from_pretrained(RECIPES / "demo" / "target", dtype=torch.float32).eval()


@cache
def prompts() -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(RECIPES / "demo" / "target")
    return [tokenizer(prompt)["input_ids"] for prompt in read_prompts(RECIPES / "demo" / "prompts.jsonl")]


def greedy(teacher: Teacher, one: Answer) -> bool:
    """Return whether every new token is the target's best, given those before it: then they are its greedy
    continuation."""
    tokens = torch.tensor([one.prompt + one.new])
    logits = teacher.forward(tokens, torch.ones_like(tokens).bool(), torch.ones_like(tokens).bool()).logits
    return tuple(logits[0, len(one.prompt) - 1 : -1].argmax(-1).tolist()) == one.new


@pytest.mark.sweep("a build of the demo, in a process of its own, for each kind")
@pytest.mark.parametrize("kind", DRAFTERS)
def test_compiled_rounds_are_the_simulated_ones(kind, tmp_path):
    """Compare every round of every prompt. The two compute the same numbers in another order, so tokens whose logits
    lie within float32's noise might change places: then the difference must say so, and no second prompt have one."""
    if find_spec(f"speccompile.drafters.{kind}.training") is None:
        pytest.skip(f"{kind} is not trained")
    _, _, tokens, least = DRAFTERS[kind]
    evaluated = checkpoint(kind)
    student = evaluated.student(tokens, target())
    teacher = Teacher(target(), student.taps)
    ran = run_checkpoint(evaluated, prompts(), NEW_TOKENS, tmp_path, tokens=tokens)
    assert list(tmp_path.iterdir()) == []
    simulated = simulate_rounds(student, teacher, ran.answers, tokens)
    apart = differences(student, teacher, simulated, ran, tokens)
    assert all(each.is_near_tie for each in apart), apart
    parted = {each.prompt for each in apart}
    assert len(parted) <= 1
    for number, (one, other) in enumerate(zip(simulated.tokens_per_round, ran.tokens_per_round, strict=True)):
        assert one == other or number in parted
        assert greedy(teacher, ran.answers[number]) or number in parted
    if not parted:
        assert simulated.mean_accepted == ran.mean_accepted
    assert ran.mean_accepted >= least
    assert ran.shape == simulated.shape == f"chain of {tokens}"


def test_a_tree_is_run_beside_the_chain_that_is_evaluated(tmp_path, monkeypatch):
    evaluated, asked = checkpoint("eagle3"), []
    student = evaluated.student(2, target())
    answers = [Answer((5, 6, 7), (8, 9))]

    def run(
        folder: Checkpoint, prompts: object, *_: object, tokens: int | None, **options: object
    ) -> SimulatedDecoding:
        asked.append((folder, list(prompts), tokens))
        return SimulatedDecoding("chain of 2" if tokens else "a tree", tuple(answers), ((1,),))

    monkeypatch.setattr("speccompile.train.evaluate.run_checkpoint", run)
    for own, overrides in ((True, ()), (False, ()), (True, ("drafter.tree=null", "drafter.tokens=2"))):
        each = replace(evaluated, overrides=overrides)
        found = evaluate(
            student, Teacher(target(), student.taps), DepthCounts.none(2), answers, 2, step=1, seconds=1.0,
            run=Run(each, 16, tmp_path, own=own),
        )  # fmt: skip
        chosen = [(each, [(5, 6, 7)], 2)] + ([(each, [(5, 6, 7)], None)] if own and not overrides else [])
        assert asked == chosen
        assert (found.own is None) == (len(chosen) == 1)
        asked.clear()


def test_weights_are_evaluated_as_they_were_saved(tmp_path):
    kind, tokens = "eagle3", 4
    student = checkpoint(kind).student(tokens, target())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in student.parameters():
            if parameter.requires_grad:
                parameter += 1e-3 * torch.randn(parameter.shape, generator=generator)
    student.save(tmp_path / "saved", torch.bfloat16)
    back = replace(checkpoint(kind), folder=tmp_path / "saved").student(tokens, target())
    pairs = [(a, b) for a, b in zip(student.parameters(), back.parameters(), strict=True) if a.requires_grad]
    assert all(torch.equal(a.to(torch.bfloat16).float(), b) for a, b in pairs)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_a_recipe_is_evaluated_in_a_chain_whatever_else_it_has(tmp_path):
    """Evaluate before the folder that the recipe names exists, too."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"""
name: beside
target: {{model: {json.dumps(str(RECIPES / "demo" / "target"))}}}
drafter:
  kind: eagle3
  model: not/yet/there
  tree: [2, 2, 1]
  sample: true
decoding: sampling
cache: {{max_length: 512, batch_size: 3}}
precision: {{target: int8, drafter: int4, block_size: 32}}
engines:
  - {{backend: onnxruntime, provider: cuda}}
prove: {{prompts: nothing.jsonl}}
""",
        encoding="utf-8",
    )
    evaluated = Checkpoint(recipe, (), "eagle3", RECIPES / "demo-eagle3" / "head")
    plan = evaluated.plan(3)
    assert (plan.drafter.tokens, plan.drafter.tree.kind, plan.drafter.sample) == (3, "chain", False)
    assert (plan.decoding, plan.verify.method, plan.batch_size, plan.max_length) == ("greedy", "exact", 1, 512)
    assert [(each.backend, each.provider, each.precision.words()) for each in plan.engines] == [
        ("onnxruntime", "cpu", {"target": "float32", "drafter": "float32"})
    ]
    assert plan.drafter.head.folder == RECIPES / "demo-eagle3" / "head"
    assert evaluated.plan(None).drafter.tree.parents == (-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6)


def test_what_ends_a_chain_early_is_left_out():
    evaluated = Checkpoint(RECIPES / "demo", (), "kangaroo", RECIPES / "demo")
    assert "drafter.threshold=0" in evaluated.settings(4)
    assert not any(each.startswith("drafter.threshold") for each in evaluated.settings(None))


@pytest.mark.sweep("another process, which imports everything")
def test_errors_of_the_other_process_are_raised_here(tmp_path):
    broken = tmp_path / "head"
    broken.mkdir()
    for file in (RECIPES / "demo-eagle3" / "head").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    tensors = load_file(broken / "model.safetensors")
    tensors["norm.weight"] = torch.full_like(tensors["norm.weight"], torch.nan)
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    work = tmp_path / "work"
    work.mkdir()
    evaluated = replace(checkpoint("eagle3"), folder=broken)
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        run_checkpoint(evaluated, [[1, 2]], 4, work, tokens=2, use_build_cache=False)
    with pytest.raises(RecipeError, match=r"drafter\.model"):
        run_checkpoint(replace(evaluated, folder=tmp_path / "nowhere"), [[1, 2]], 4, work, tokens=2)
    assert list(work.iterdir()) == []


def test_a_compiled_loop_that_does_something_else_is_told(tmp_path, caplog, monkeypatch):
    """Compare the prompts of one checkpoint with rounds of none of its drafts."""
    evaluated, tokens = checkpoint("eagle3"), 2
    student = evaluated.student(tokens, target())
    teacher = Teacher(target(), student.taps)
    prompt = prompts()[0]
    with torch.no_grad():
        text = target().generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)[0].tolist()
    answers = [Answer(tuple(prompt), tuple(text[len(prompt) :]))]
    assert simulate_rounds(student, teacher, answers, tokens).mean_accepted > 1.5

    def other(*args: object, **options: object) -> SimulatedDecoding:
        return SimulatedDecoding("chain of 2", tuple(answers), ((1,) * (len(answers[0].new) - 1),))

    monkeypatch.setattr("speccompile.train.evaluate.run_checkpoint", other)
    run = Run(evaluated, 16, tmp_path)
    with caplog.at_level(logging.WARNING, logger="speccompile"):
        found = evaluate(student, teacher, DepthCounts.none(tokens), answers, tokens, step=3, seconds=2.0, run=run)
    assert len(caplog.messages) == 1
    assert "compiled, it accepts 1.000 tokens a round, simulated" in caplog.messages[0]
    assert "of prompt 1, where the drafter's logits differ by" in caplog.messages[0]
    assert not found.differences[0].is_near_tie
    assert found.to_json()["differing"][0]["who"] == "drafter"
