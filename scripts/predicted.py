#!/usr/bin/env python3
"""Compare predicted with measured times of a round: scripts/predicted.py FOLDER [--threads N] [--repeats N].

Three random Llamas (6, 32 and 174 million parameters) in float32, bfloat16, int8 and int4. FOLDER keeps them and their
bundles, which are made once. A repetition takes a profile of this machine and then times every bundle's `verify` over
windows of one and of five tokens, as `speccompile bench` does: medians. Of the repetitions the least of each figure
counts, of the profiles' and of the measured ones alike, because other processes on a machine only ever add. It ends
with 1 if a prediction is off by more than a quarter.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from speccompile.compiler.from_recipe import build
from speccompile.measure.bench.costs import measure_costs
from speccompile.measure.predict import ProfileCosts
from speccompile.measure.predict.work import target_work
from speccompile.measure.profile import Profile, measure_profile
from speccompile.plan.plan import Plan
from speccompile.plan.precisions import OWN_LAYOUTS
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
    profiles, measured = [], list[dict[Key, float]]()
    for _ in range(options.repeats):
        profiles.append(measure_profile(options.threads))
        measured.append(_measured(options.folder, plans, options.threads))
    profile = _quietest(profiles)
    predicted = _predicted(plans, profile)
    print(f"{profile.processor}, {profile.kernels}, {options.threads} threads, {options.repeats} repetitions")
    print("| model | precision | window | measured, ms | predicted, ms | error |\n|---|---|---|---|---|---|")
    errors = []
    for key, seconds in predicted.items():
        least = min(each[key] for each in measured)
        errors.append(seconds / least - 1)
        print(f"| {' | '.join(map(str, key))} | {1000 * least:.3f} | {1000 * seconds:.3f} | {errors[-1]:+.0%} |")
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
        {"name": each, "backend": "onnxruntime", "provider": "cpu", "precision": {"target": each}}
        for each in OWN_LAYOUTS
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


def _measured(folder: Path, plans: dict[str, Plan], threads: int) -> dict[Key, float]:
    """Return the seconds of `verify` for every model, precision and window."""
    found: dict[Key, float] = {}
    for name, plan in plans.items():
        for engine in plan.engines:
            bundle = Bundle.open(_bundle(folder, name), engine=engine.name, threads=threads)
            costs = measure_costs(bundle, WINDOWS, context=CONTEXT, repeats=ROUNDS)
            found |= {(name, engine.name, window): costs.verify[window] for window in WINDOWS}
    return found


def _predicted(plans: dict[str, Plan], profile: Profile) -> dict[Key, float]:
    found, costs = {}, ProfileCosts(profile)
    for name, plan in plans.items():
        for engine in plan.engines:
            work = target_work(replace(plan, engines=(engine,)))
            for window in WINDOWS:
                found[name, engine.name, window] = costs.run(work, window, CONTEXT, work.weight_bytes).middle
    return found


def _quietest(profiles: list[Profile]) -> Profile:
    """Return the profile with the least time of each figure, and the most bandwidth."""
    first = profiles[0]
    linear = {
        name: tuple(
            tuple(min(each.linear[name][place][row] for each in profiles) for row in range(len(first.rows)))
            for place in range(len(first.footprints))
        )
        for name in first.linear
    }
    return replace(
        first,
        linear=linear,
        bandwidth=tuple(max(values) for values in zip(*(each.bandwidth for each in profiles), strict=True)),
        attend=tuple(min(values) for values in zip(*(each.attend for each in profiles), strict=True)),
        **{
            name: min(getattr(each, name) for each in profiles)
            for name in ("run_seconds", "node_seconds", "gate", "argmax")
        },
    )


if __name__ == "__main__":
    main()
