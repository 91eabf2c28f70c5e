"""Steps: against plain torch, however they are split, to the same bits after a stop."""

import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from speccompile.errors import UnsupportedModelError, UsageError
from speccompile.train import precision
from speccompile.train.loop import checkpoint_activations, parts_of
from speccompile.train.optimizers import Optimizers, rate_share
from tests import zoo
from tests.train.toy_training import (
    SCHEDULE,
    SEED,
    TOKENS,
    Toy,
    ToyWeigh,
    run,
    run_until_it_fails,
    texts,
)


def files(folder: Path, step: int) -> dict[str, torch.Tensor]:
    path = folder / "checkpoints" / f"step-{step:010d}"
    return load_file(path / "learner.safetensors") | load_file(path / "optimizers.safetensors")


def weights(student: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in student.state_dict().items()}


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=2e-6, msg=lambda text, name=name: name + text)


def plain_training() -> nn.Module:
    """Return the same by torch alone: one batch, a mean by weight, AdamW with a rate that is written out."""
    student = Toy()
    named = [(name, value) for name, value in student.named_parameters() if value.requires_grad]
    matrices = [value for _, value in named if value.ndim > 1]
    vectors = [value for _, value in named if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    for step in range(20):
        samples = torch.from_numpy(texts(step, 0, 1, 8))
        losses = functional.cross_entropy(student(samples % TOKENS), (3 * samples + 1) % TOKENS, reduction="none")
        share = (1.0 + samples % 3) / (1.0 + samples % 3).sum()
        (losses * share).sum().backward()
        torch.nn.utils.clip_grad_norm_([value for _, value in named], 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * min(1, (step + 1) / 4) * (0.1 + 0.45 * (1 + np.cos(np.pi * step / 20)))
        optimizer.step()
        optimizer.zero_grad()
    return student


def test_steps_are_those_of_plain_torch(tmp_path):
    trained, student = run(tmp_path)
    assert_close(weights(student), weights(plain_training()))
    assert (trained.steps, trained.last.name, trained.best) == (20, "step-0000000020", trained.last)


@pytest.mark.parametrize("accumulate", [3, 8])
def test_parts_give_the_step_of_the_whole(tmp_path, accumulate):
    _, whole = run(tmp_path / "whole")
    student = Toy()
    weigh = ToyWeigh(student, 8)
    run(tmp_path / "parts", student=student, weigh=weigh, accumulate=accumulate)
    assert weigh.calls[:accumulate] == [(0, part, accumulate) for part in range(accumulate)]
    assert_close(weights(student), weights(whole))


@pytest.mark.parametrize("settings", [{}, {"matrix_rate": 0.02}, {"precision": "bfloat16"}, {"accumulate": 2}])
def test_a_training_that_stops_goes_on_to_the_same_bits(tmp_path, settings):
    run(tmp_path / "straight", student=Toy(dropout=0.3), **settings)
    run_until_it_fails(tmp_path / "broken", student=Toy(dropout=0.3), **settings)
    torch.manual_seed(99)  # what else draws between the two must not matter
    run(tmp_path / "broken", student=Toy(dropout=0.3), save_every=1e9, **settings)
    straight, broken = files(tmp_path / "straight", 20), files(tmp_path / "broken", 20)
    assert straight.keys() == broken.keys()
    assert all(torch.equal(value, broken[name]) for name, value in straight.items())


def test_dropout_is_drawn_by_part(tmp_path):
    """Draw dropout that does something: the test above would not see it otherwise."""
    _, without = run(tmp_path / "without")
    _, dropped = run(tmp_path / "with", student=Toy(dropout=0.3))
    assert not torch.equal(weights(without)["hidden.weight"], weights(dropped)["hidden.weight"])


def test_a_training_that_is_done_does_nothing_more(tmp_path):
    run(tmp_path, evaluate_every=1e9)
    student = Toy()
    weigh = ToyWeigh(student, 8)
    trained, _ = run(tmp_path, student=student, weigh=weigh, evaluate_every=1e9)
    assert weigh.calls == []
    assert (trained.steps, trained.score) == (20, -20.0)


def test_a_budget_of_time_counts_on_from_the_checkpoint(tmp_path):
    budget = {"steps": None, "seconds": 0.5}
    run_until_it_fails(tmp_path, 4, **budget)
    before = (tmp_path / "checkpoints/latest/state.json").read_text()
    assert '"step": 4' in before
    trained, _ = run(tmp_path, **budget)
    assert trained.steps > 4
    assert 0.5 <= trained.elapsed < 2


def test_the_rate_is_a_line_and_a_cosine():
    shares = [rate_share(step, step / 100, 10, 0.05) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert np.argmax(shares) == 9
    assert rate_share(50, 0.5, 10, 0.05) == pytest.approx(0.525)
    assert rate_share(10**6, 1.0, 10, 0.05) == pytest.approx(0.05)
    assert rate_share(0, 0.0, 0, 0.05) == 1.0


def test_muon_trains_matrices_that_are_not_over_tokens():
    optimizers = Optimizers.of(Toy(), replace(SCHEDULE, matrix_rate=0.02))
    assert optimizers.names == {
        "muon": ("hidden.weight", "back.weight"),
        "adamw": ("embed_tokens.weight", "hidden.bias", "norm.weight", "norm.bias", "lm_head.weight"),
    }
    optimizers.set_rates(1, 0.0)
    assert {name: each.param_groups[0]["lr"] for name, (each, _) in optimizers.by_name.items()} == {
        "muon": 0.01, "adamw": 0.01,
    }  # fmt: skip


def test_embeddings_under_any_name_are_adamws():
    """GPT-2 calls them wte, and its head is tied to them."""
    optimizers = Optimizers.of(zoo.model("gpt2", seed=0), replace(SCHEDULE, matrix_rate=0.02))
    assert "transformer.wte.weight" in optimizers.names["adamw"]
    assert all("transformer.h." in name for name in optimizers.names["muon"])


def test_bfloat16_is_of_activations_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_cost", lambda: 0.2)
    seen = set()
    student = Toy()
    student.back.register_forward_hook(lambda module, given, output: seen.add(output.dtype))
    run(tmp_path / "low", student=student, precision="bfloat16")
    _, whole = run(tmp_path / "whole")
    assert seen == {torch.bfloat16}
    assert {value.dtype for value in student.parameters()} == {torch.float32}
    torch.testing.assert_close(student.back.weight, whole.back.weight, rtol=0.1, atol=0.05)


def test_slow_products_in_bfloat16_are_computed_in_float32_and_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(precision, "bfloat16_cost", lambda: 36.4)
    trained, slow = run(tmp_path / "slow", precision="bfloat16")
    _, whole = run(tmp_path / "whole")
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(slow).items())
    assert trained.precision == "float32"
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("train.schedule.precision: products in bfloat16 take 36 times as long as in float32")


def test_the_cost_of_bfloat16_is_measured():
    """Measure one library for both types: on AVX2 it has no instructions for bfloat16; processors with them have
    neither."""
    script = "from speccompile.train.precision import bfloat16_cost; print(bfloat16_cost())"
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    cost = float(subprocess.run([sys.executable, "-c", script], env=limited, capture_output=True, check=True).stdout)
    assert cost > precision.SLOWER or platform.machine() != "x86_64"


def test_a_step_beyond_the_budget_of_time_is_told_and_the_last(tmp_path, caplog):
    student = Toy()
    weigh = ToyWeigh(student, 8)
    weigh.before[0] = lambda _: time.sleep(0.4) or 1.0
    trained, _ = run(tmp_path / "long", student=student, weigh=weigh, steps=None, seconds=0.1)
    assert trained.steps == 1
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("step 1 has run for 0.1 s, which is all of train.schedule.seconds: the training ends with")
    caplog.clear()
    run(tmp_path / "short", steps=None, seconds=0.3)
    assert not caplog.records


def test_activations_are_computed_again_to_the_same_bits(tmp_path):
    _, plain = run(tmp_path / "plain", student=Toy(dropout=0.3))
    student, calls = Toy(dropout=0.3), []
    student.back.register_forward_hook(lambda *_: calls.append(1))
    run(tmp_path / "again", student=student, checkpointing=True)
    assert len(calls) == 2 * 20
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(student).items())


def test_transformers_models_checkpoint_every_layer():
    model = zoo.model("llama", seed=0).requires_grad_(True).train()
    holder = nn.Module()
    holder.network = model
    checkpoint_activations(holder)
    calls = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    model(torch.arange(12)[None], use_cache=False).logits.sum().backward()
    assert len(calls) == 2 * len(model.model.layers)


@pytest.mark.parametrize(("accumulate", "processes", "parts"), [(1, 1, 1), (1, 2, 2), (4, 2, 4), (4, 3, 6), (2, 8, 8)])
def test_parts_are_shared_alike(accumulate, processes, parts):
    assert parts_of(replace(SCHEDULE, accumulate=accumulate), processes) == parts


def test_more_parts_than_texts_are_refused():
    with pytest.raises(UsageError, match=r"received 8, expected at least 9: .* accumulate 3 and 9 processes"):
        parts_of(replace(SCHEDULE, accumulate=3), 9)


def test_what_cannot_learn_is_refused(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"no parameter that has gradients"):
        run(tmp_path, student=Toy().requires_grad_(False))
    with pytest.raises(UnsupportedModelError, match=r"embed_tokens.weight is torch.bfloat16, expected float32"):
        run(tmp_path, student=Toy().to(torch.bfloat16))
    assert not (tmp_path / "checkpoints").exists()


def test_the_seed_is_part_of_what_is_drawn(tmp_path):
    from speccompile.train.loop import seed_part

    drawn = []
    for at in [(SEED, 0, 0), (SEED, 1, 0), (SEED, 0, 1), (SEED + 1, 0, 0), (SEED, 0, 0)]:
        seed_part(*at)
        drawn.append(torch.rand(2).tolist())
    assert drawn[0] == drawn[4]
    assert len({tuple(each) for each in drawn}) == 4
