#!/usr/bin/env python3
"""Measure long prompts of a 4-bit model beside its peers, with each kind of cache: a table on stderr, JSON on stdout.

    .venv/bin/python scripts/peers/long_contexts.py FOLDER/random FOLDER --write

MODEL and FOLDER are those of run.py. Every generation has a process of its own: a prompt of random tokens, then 64 new
ones, greedy. In every round all forms run with one context before the next context. --write puts the medians into
docs/figures/long.json beside those of other processors, and the tables and the plot into the pages that show them.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from common import say
from run import OURS, cases_of, keep_figures, prepare

PEERS = (OURS, "openvino", "onnxruntime", "llama_cpp")
NEW_TOKENS = 64
CONTEXTS = (4096, 8192, 16384)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, help="tokens of the prompts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="0 prepares only")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--write", action="store_true", help="write docs/figures/long.json and the pages' tables")
    options = parser.parse_args()
    cases = cases_of("long", options.peers, options.model, options.folder, [options.threads])
    prepare(cases, options.model)
    rows = [(context, case) for context in options.contexts for case in cases]
    measured: list[list[dict[str, Any]]] = [[] for _ in rows]
    try:
        for seed in range(options.rounds):
            say(f"round {seed + 1} of {options.rounds}")
            for found, (context, case) in zip(measured, rows, strict=True):
                more = ("--prompt-tokens", context, "--new-tokens", NEW_TOKENS)
                found += case.measured_once(options.model, seed, *more)
    except KeyboardInterrupt:
        say("interrupted: what was measured until now")
    figures = [
        {"context": context, "form": case.title, **medians(found)}
        for found, (context, case) in zip(measured, rows, strict=True)
        if found
    ]
    say("\n".join([render(figures), *(f"{case.title}: {case.failed}" for case in cases if case.failed)]))
    print(json.dumps(figures))
    if options.write:
        versions = {case.peer: case.version for case in cases if case.version}
        facts = {"rounds": options.rounds, "threads": options.threads, "versions": versions}
        keep_figures("long", facts | {"contexts": figures})


def medians(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return what one form did with one context. anonymous: memory that is not mapped from files, caches included."""
    shown = {
        "tokens_per_second": lambda one: one["tokens_per_second"],
        "first_token_seconds": lambda one: one["first_token_seconds"],
        "anonymous_megabytes": lambda one: one["memory_megabytes"]["anonymous"],
    }
    return {name: round(median(map(value, found)), 2) for name, value in shown.items()}


def render(figures: list[dict[str, Any]]) -> str:
    lines = [f"{'context':>8} {'form':<32}{'tokens/s':>10}{'first s':>10}{'anonymous MB':>14}"]
    for row in figures:
        speed, first, memory = (
            row[name] for name in ("tokens_per_second", "first_token_seconds", "anonymous_megabytes")
        )
        lines.append(f"{row['context']:>8} {row['form']:<32}{speed:>10.1f}{first:>10.1f}{memory:>14.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
