#!/usr/bin/env python3
"""Compare predicted with measured times of a round: scripts/predicted.py FOLDER [--threads N] [--repeats N].

Three random Llamas (6, 32 and 174 million parameters) in float32, bfloat16, int8 and int4. FOLDER keeps them and their
bundles, which are made once. A repetition takes a profile of this machine and then times every bundle's `verify` over
windows of one and of five tokens, as `speccompile bench` does; the figures are medians over repetitions. It ends with 1
if a prediction is off by more than a quarter.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from speccompile.compiler.from_recipe import build
from speccompile.measure.bench.costs import measure_costs
from speccompile.measure.predict import ProfileCosts
from speccompile.measure.predict.work import target_work
from speccompile.measure.profile import Profile, measure_profile
from speccompile.measure.profile.graphs import FORMATS
from speccompile.plan.plan import Plan
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle

MODELS = {
    "6m": {"num_hidden_layers": 5, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
           "intermediate_size": 704, "vocab_size": 4096},
    "32m": {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
            "intermediate_size": 1408, "vocab_size": 8192},
    "174m": {"num_hidden_layers": 12, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
             "intermediate_size": 2816, "vocab_size": 16000},
}  # fmt: skip
WINDOWS, CONTEXT, ROUNDS, TOLERANCE = (1, 5), 256, 15, 0.25

Key = tuple[str, str, int]
"""Model, precision and window."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    plans = {name: _made(options.folder, name) for name in MODELS}
    found: dict[Key, list[tuple[float, float]]] = {}
    for _ in range(options.repeats):
        profile = measure_profile(options.threads)
        for key, pair in _compared(options.folder, plans, profile):
            found.setdefault(key, []).append(pair)
    print(f"{profile.processor}, {profile.kernels}, {options.threads} threads, {options.repeats} repetitions")
    print("| model | precision | window | measured, ms | predicted, ms | error |\n|---|---|---|---|---|---|")
    errors = []
    for (name, precision, window), pairs in found.items():
        measured, predicted = (median(each) for each in zip(*pairs, strict=True))
        errors.append(predicted / measured - 1)
        row = f"{1000 * measured:.3f} | {1000 * predicted:.3f} | {errors[-1]:+.0%}"
        print(f"| {name} | {precision} | {window} | {row} |")
    within = sum(abs(error) <= TOLERANCE for error in errors)
    print(f"\n{within} of {len(errors)} within {TOLERANCE:.0%}")
    sys.exit(within < len(errors))


def _made(folder: Path, name: str) -> Plan:
    """Make the model, its recipe and its bundle where they are missing. Return the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    model, recipe = folder / name, folder / f"{name}.yaml"
    if not (model / "config.json").is_file():
        sizes = [word for key, value in MODELS[name].items() for word in ("--set", f"{key}={value}")]
        script = Path(__file__).with_name("random_llama.py")
        subprocess.run([sys.executable, script, model, "--dtype", "float32", *sizes], check=True)
    engines = [
        {"name": each, "backend": "onnxruntime", "provider": "cpu", "precision": {"target": each}} for each in FORMATS
    ]
    data = {
        "name": name, "target": {"model": name}, "drafter": {"kind": "prompt_lookup", "tokens": max(WINDOWS) - 1},
        "cache": {"max_length": 2 * CONTEXT}, "engines": engines,
    }  # fmt: skip
    recipe.write_text(json.dumps(data, indent=2), encoding="utf-8")  # JSON is YAML
    if not _bundle(folder, name).is_dir():
        build(recipe, _bundle(folder, name), prove=False)
    return make_plan(load_recipe(recipe))


def _bundle(folder: Path, name: str) -> Path:
    return folder / f"{name}.bundle"


def _compared(folder: Path, plans: dict[str, Plan], profile: Profile) -> list[tuple[Key, tuple[float, float]]]:
    """Return (measured, predicted) seconds of every model, precision and window."""
    found, costs = [], ProfileCosts(profile)
    for name, plan in plans.items():
        for engine in plan.engines:
            bundle = Bundle.open(_bundle(folder, name), engine=engine.name, threads=profile.threads)
            measured = measure_costs(bundle, WINDOWS, context=CONTEXT, repeats=ROUNDS).verify
            work = target_work(replace(plan, engines=(engine,)))
            for window in WINDOWS:
                predicted = costs.run(work, window, CONTEXT, work.weight_bytes).middle
                found.append(((name, engine.name, window), (measured[window], predicted)))
    return found


if __name__ == "__main__":
    main()
