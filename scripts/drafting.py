"""How much a round accepts: the ways of drafting beside each other, on one recipe's models and prompts.

    python scripts/drafting.py recipes/demo/recipe.yaml --max-new-tokens 64

Each way is built without its proof into a temporary folder. A row of the table: drafts per round, new tokens per round
at temperature 0 and 1 (the bonus token included; 1.0 is autoregressive), all prompts together.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.builder import build
from speccompile.bundle.prompts import read_prompts
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle, Generation

DYNAMIC = {"depth": 5, "top_k": 8, "nodes": 24}
WAYS: dict[str, dict[str, Any]] = {
    "chain of 4, drawn": {"tokens": 4, "sample": True},
    "chain of 4, certain": {"tokens": 4, "sample": False},
    "tree 4-2-1-1 (28 nodes), drawn": {"tree": [4, 2, 1, 1], "sample": True},
    "tree 4-2-1-1 (28 nodes), certain": {"tree": [4, 2, 1, 1], "sample": False},
    "eagle-25, drawn": {"tree": "eagle-25", "sample": True},
    "eagle-25, certain": {"tree": "eagle-25", "sample": False},
    "medusa-63, certain": {"tree": "medusa-63", "sample": False},
    "dynamic, depth 5, best 8, 24 nodes": {"tree": DYNAMIC},
    "prompt lookup of 4": {"kind": "prompt_lookup", "tokens": 4},
    "prompt lookup, 3 matches of 4": {"kind": "prompt_lookup", "tree": [3, 1, 1, 1]},
    "layers 0, 1 and 4 of the target, chain of 4, drawn": {"kind": "layer_skip", "layers": [0, 1, 4], "tokens": 4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    prompts = read_prompts(options.recipe.parent / "prompts.jsonl")
    print("| way | drafts | temperature 0 | temperature 1 |\n|---|---|---|---|", flush=True)
    for way, drafter in WAYS.items():
        with TemporaryDirectory() as folder:
            bundle = _open(options.recipe, drafter, Path(folder) / "bundle", options.threads)
            found = [_mean_accepted(bundle, prompts, temperature, options.max_new_tokens) for temperature in (0.0, 1.0)]
            print(f"| {way} | {bundle.manifest.tokens} | {found[0]:.2f} | {found[1]:.2f} |", flush=True)


def _open(recipe: Path, drafter: dict[str, Any], output: Path, threads: int) -> Bundle:
    written = drafter if "kind" in drafter else {"kind": "model", "model": "drafter"} | drafter
    plan = make_plan(load_recipe(recipe, ["decoding=sampling", f"drafter={json.dumps(written)}"]))
    return Bundle.open(build(plan, output, prove=False), threads=threads)


def _mean_accepted(bundle: Bundle, prompts: list[Any], temperature: float, max_new_tokens: int) -> float:
    runs: list[Generation] = [
        bundle.generate(prompt, temperature=temperature, seed=seed, max_new_tokens=max_new_tokens, adaptive=False)
        for seed, prompt in enumerate(prompts)
    ]
    return sum(len(run.token_ids) - 1 for run in runs) / sum(run.rounds for run in runs)


if __name__ == "__main__":
    main()
