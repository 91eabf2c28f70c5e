#!/usr/bin/env python3
"""Measure what a cold process gives its first request: adaptive draft length beside a fixed one and beside no drafts.

scripts/cold_start.py BUNDLE [--prompt TEXT ...] [--new-tokens N] [--processes N] [--empty-cache]

Each figure is the median of processes of `speccompile generate` that generate one text and end. The three ways take
turns, so that another load on the machine meets all of them. With --empty-cache every process finds an empty cache
folder, and measures the costs of this machine's windows itself.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

PROMPTS = ("def main(", "import os", "class A")
WAYS = {"adaptive": (), "fixed": ("--fixed-draft-length",), "never": ("--autoregressive",)}


def generate(bundle: Path, prompt: str, new_tokens: int, options: Sequence[str], cache: str | None) -> dict[str, float]:
    """Return what `speccompile generate --json` says of one text, in a process of its own."""
    environment = os.environ | ({"SPECCOMPILE_CACHE_DIR": cache, "XDG_CACHE_HOME": cache} if cache else {})
    command = [sys.executable, "-m", "speccompile", "generate", str(bundle), "--prompt", prompt, "--json", "--quiet"]
    command += ["--max-new-tokens", str(new_tokens), *options]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def measure(bundle: Path, prompt: str, new_tokens: int, processes: int, empty_cache: bool) -> dict[str, list[dict]]:
    """Return the answers of `processes` processes each way."""
    answers: dict[str, list[dict]] = {way: [] for way in WAYS}
    for _ in range(processes):
        for way, options in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                answers[way].append(generate(bundle, prompt, new_tokens, options, folder if empty_cache else None))
    return answers


def row(prompt: str, answers: dict[str, list[dict]]) -> str:
    speeds = {way: median(one["tokens_per_second"] for one in found) for way, found in answers.items()}
    accepted = {way: [one["mean_accepted"] for one in found] for way, found in answers.items()}
    best = max(speeds["fixed"], speeds["never"])
    cells = [
        repr(prompt),
        *(f"{speeds[way]:.0f}" for way in WAYS),
        f"{speeds['adaptive'] / best:.2f}",
        f"{min(accepted['adaptive']):.2f}",
        f"{median(accepted['adaptive']):.2f}",
        f"{median(accepted['fixed']):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "--prompt", action="append", help=f"may be given several times (by default {', '.join(PROMPTS)})"
    )
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--processes", type=int, default=10, help="of each way, for each prompt (%(default)s)")
    parser.add_argument("--empty-cache", action="store_true")
    given = parser.parse_args()
    columns = ["prompt", *(f"{way}, tokens/s" for way in WAYS), "adaptive / best of others"]
    columns += ["tokens a round: least", "median", "fixed"]
    print("| " + " | ".join(columns) + " |", "|---" * len(columns) + "|", sep="\n", flush=True)
    for prompt in given.prompt or PROMPTS:
        print(
            row(prompt, measure(given.bundle, prompt, given.new_tokens, given.processes, given.empty_cache)), flush=True
        )


if __name__ == "__main__":
    main()
