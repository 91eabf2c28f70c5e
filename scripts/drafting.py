"""How much a round accepts, and what that is worth: ways of drafting beside each other, on one target and its prompts.

    python scripts/drafting.py recipes/demo/recipe.yaml --max-new-tokens 64
    python scripts/drafting.py recipes/demo/recipe.yaml --only eagle3,medusa

Each way is built without its proof into a temporary folder, its graphs separate, so that the time of drafting is known.
A row of the table: drafts per round; new tokens per round at temperature 0 and 1 (the bonus token included; 1.0 is
autoregressive), all prompts together; and at temperature 0 tokens per second behind the prefill, the same over
autoregressive decoding in the same run, and what that ratio would be if drafts cost nothing: the bound of this way.

Heads lie beside the recipes that use them; others in --heads, each in a folder named by its kind, for example

    speccompile train recipes/demo/train.yaml --set drafter.kind=hydra --set drafter.model=../../build/heads/hydra

A way whose head is not there is left out, and named on stderr.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle, Generation

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
DYNAMIC = {"depth": 5, "top_k": 8, "nodes": 24}
MEDUSA_TREE = load_recipe(RECIPES / "demo-medusa").drafter.model_dump()["tree"]
SHIPPED = {kind: RECIPES / f"demo-{kind}" / "head" for kind in ("eagle3", "medusa", "dflash")}

WAYS: dict[str, dict[str, Any]] = {
    "chain of 4, drawn": {"tokens": 4, "sample": True},
    "chain of 4, certain": {"tokens": 4, "sample": False},
    "chain of 4, tail of 4": {"tokens": 4, "then": "prompt_lookup"},
    "chain of 2, tail of 6": {"tokens": 2, "then": {"kind": "prompt_lookup", "tokens": 6}},
    "chain of 4, gate: a match of 3 copies 8": {
        "tokens": 4,
        "gate": {"kind": "prompt_lookup", "match": 3, "tokens": 8},
    },
    "at most 8, in 3 passes over 4 guesses": {"tokens": 8, "drafter": {"kind": "prompt_lookup", "passes": 3}},
    "tree 4-2-1-1 (28 nodes), drawn": {"tree": [4, 2, 1, 1], "sample": True},
    "tree 4-2-1-1 (28 nodes), certain": {"tree": [4, 2, 1, 1], "sample": False},
    "eagle-25, drawn": {"tree": "eagle-25", "sample": True},
    "eagle-25, certain": {"tree": "eagle-25", "sample": False},
    "medusa-63, certain": {"tree": "medusa-63", "sample": False},
    "dynamic, depth 5, best 8, 24 nodes": {"tree": DYNAMIC},
    "prompt lookup of 4": {"kind": "prompt_lookup", "tokens": 4},
    "prompt lookup, 3 matches of 4": {"kind": "prompt_lookup", "tree": [3, 1, 1, 1]},
    "suffix, chain of 4": {"kind": "suffix", "tokens": 4},
    "suffix, chain of 4, remembering 4096": {"kind": "suffix", "tokens": 4, "remember": 4096},
    "suffix, dynamic, depth 4, best 3, 12 nodes": {"kind": "suffix", "tree": {"depth": 4, "top_k": 3, "nodes": 12}},
    "layers 0, 1 and 4 of the target, chain of 4, drawn": {"kind": "layer_skip", "layers": [0, 1, 4], "tokens": 4},
    "layers 0 and 1, chain of 4, drawn": {"kind": "layer_skip", "layers": [0, 1], "tokens": 4},
    "attention of layers 0, 2 and 3, MLPs of 0 and 4, chain of 2, drawn": {
        "kind": "layer_skip",
        "layers": {"attention": [0, 2, 3], "mlp": [0, 4]},
        "tokens": 2,
    },
    "eagle, chain of 4, drawn": {"kind": "eagle", "tokens": 4, "sample": True},
    "eagle, dynamic, depth 5, best 8, 24 nodes": {"kind": "eagle", "tree": DYNAMIC},
    "eagle3, chain of 4, drawn": {"kind": "eagle3", "tokens": 4, "sample": True},
    "eagle3, dynamic, depth 5, best 8, 24 nodes": {"kind": "eagle3", "tree": DYNAMIC},
    "p_eagle, chain of 4, drawn": {"kind": "p_eagle", "tokens": 4, "sample": True},
    "dflash, block of 8, drawn": {"kind": "dflash", "sample": True},
    "dspark, its block, drawn": {"kind": "dspark", "sample": True},
    "domino, its block, drawn": {"kind": "domino", "sample": True},
    "domino, the 16 best nodes of a block": {"kind": "domino", "tree": {"kind": "blocks", "nodes": 16}},
    "pard, chain of 4, drawn": {"kind": "pard", "tokens": 4, "sample": True},
    "pard2, chain of 4, drawn": {"kind": "pard2", "tokens": 4, "sample": True},
    "medusa, its tree of 40, certain": {"kind": "medusa", "tree": MEDUSA_TREE, "sample": False},
    "hydra, chain of 4, drawn": {"kind": "hydra", "tokens": 4, "sample": True},
    "hydra, tree 4-2-1-1 (28 nodes), certain": {"kind": "hydra", "tree": [4, 2, 1, 1], "sample": False},
    "redrafter, chain of 4, drawn": {"kind": "redrafter", "tokens": 4, "sample": True},
    "redrafter, beams: dynamic, depth 4, best 8, 16 nodes": {
        "kind": "redrafter",
        "tree": {"depth": 4, "top_k": 8, "nodes": 16},
    },
    "dflash, the 16 best nodes of a block": {"kind": "dflash", "tree": {"kind": "blocks", "nodes": 16}},
    "kangaroo, chain of 4, drawn": {"kind": "kangaroo", "tokens": 4, "sample": True, "threshold": 0.0},
}
"""Ways without a kind draft with the recipe's own drafter model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--heads", type=Path, default=Path("build") / "heads", help="folder with a head for each kind")
    parser.add_argument("--only", default="", help="kinds, with commas between them")
    options = parser.parse_args()
    prompts = read_prompts(options.recipe.parent / "prompts.jsonl")
    titles = ("way", "drafts", "temperature 0", "temperature 1", "tokens/s", "over one by one", "if drafts were free")
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}", flush=True)
    for way, written in WAYS.items():
        drafter = _drafter(written, options.heads)
        if options.only and written.get("kind", "model") not in options.only.split(","):
            continue
        if drafter is None:
            print(f"no head of kind {written['kind']} in {options.heads}: left out", file=sys.stderr)
            continue
        with TemporaryDirectory() as folder:
            bundle = _open(options.recipe, drafter, Path(folder) / "bundle", options.threads)
            print(f"| {way} | {' | '.join(_cells(bundle, prompts, options.max_new_tokens))} |", flush=True)


def _drafter(written: dict[str, Any], heads: Path) -> dict[str, Any] | None:
    """Return the section `drafter` of a way; None where its head is not there."""
    kind = written.get("kind", "model")
    if kind == "model":
        return {"kind": kind, "model": "drafter"} | written
    if kind in ("prompt_lookup", "layer_skip"):
        return written
    folder = SHIPPED.get(kind, heads / kind).resolve()
    return written | {"model": str(folder)} if folder.is_dir() else None


def _open(recipe: Path, drafter: dict[str, Any], output: Path, threads: int) -> Bundle:
    overrides = ["decoding=sampling", "graphs=separate", f"drafter={json.dumps(drafter)}"]
    return Bundle.open(build(make_plan(load_recipe(recipe, overrides)), output, prove=False), threads=threads)


def _cells(bundle: Bundle, prompts: Sequence[Any], max_new_tokens: int) -> list[str]:
    greedy, drawn = (_run(bundle, prompts, max_new_tokens, temperature=heat) for heat in (0.0, 1.0))
    alone = _run(bundle, prompts, max_new_tokens, autoregressive=True)
    speed, base = _speed(greedy), _speed(alone)
    free = sum(len(run.token_ids) - 1 for run in greedy) / sum(run.verify_seconds for run in greedy)
    return [
        str(bundle.manifest.tokens), f"{_mean_accepted(greedy):.2f}", f"{_mean_accepted(drawn):.2f}", f"{speed:.0f}",
        f"{speed / base:.2f}", f"{free / base:.2f}",
    ]  # fmt: skip


def _run(bundle: Bundle, prompts: Sequence[Any], max_new_tokens: int, **options: Any) -> list[Generation]:
    return [
        bundle.generate(prompt, seed=seed, max_new_tokens=max_new_tokens, adaptive=False, **options)
        for seed, prompt in enumerate(prompts)
    ]


def _mean_accepted(runs: Sequence[Generation]) -> float:
    return sum(len(run.token_ids) - 1 for run in runs) / sum(run.rounds for run in runs)


def _speed(runs: Sequence[Generation]) -> float:
    """Return tokens per second behind the prefill, which gives the first."""
    return sum(len(run.token_ids) - 1 for run in runs) / sum(run.seconds - run.prefill_seconds for run in runs)


if __name__ == "__main__":
    main()
