"""Measurements behind the figures of README and pages: builds of the demo, each with its benchmark."""

import datetime
import hashlib
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.machine.system import available_cores, processor

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "figures"
BUNDLES = "build/figures"
PROMPTS = "recipes/demo/prompts.jsonl"
BENCH = ("--prompts", PROMPTS, "--max-new-tokens", "64", "--threads", "1", "--json")
KEPT = (
    "method", "decoding", "kernels", "threads", "prompts", "max_new_tokens", "repeats", "draft_length", "speedup",
    "decode_speedup", "acceptance_by_depth", "equal_prompts",
)  # fmt: skip
"""Keys of the report that figures keep."""
KEPT_OF_MODES = ("tokens_per_second", "decode_tokens_per_second", "mean_accepted", "mean_draft_length", "rounds")


def without_weights(drafter: str) -> tuple[str, ...]:
    """Return settings of a drafter that has no weights, where the recipe names their precision."""
    return (f"drafter={drafter}", "precision.drafter=null")


LOOKUP = without_weights("{kind: prompt_lookup, tokens: 8}")


@dataclass(frozen=True)
class Case:
    """A bundle to measure: recipe and overridden keys. label, drafts: cells of the table."""

    label: str
    drafts: str
    recipe: str = "recipes/demo"
    settings: tuple[str, ...] = ()

    def build(self, output: str) -> tuple[str, ...]:
        options = [part for setting in self.settings for part in ("--set", setting)]
        # With the proof: the adaptive draft length begins with the acceptance that it measures, as for users.
        return ("build", self.recipe, *options, "--output", output)


MEASUREMENTS: dict[str, dict[str, Case]] = {
    "methods": {
        "prompt_lookup": Case("prompt lookup", "chain of 8", settings=LOOKUP),
        "suffix": Case("suffix matching", "chain of 8", settings=without_weights("{kind: suffix, tokens: 8}")),
        "token_recycling": Case(
            "Token Recycling", "tree of 8", settings=without_weights("{kind: token_recycling, nodes: 8}")
        ),
        "model": Case("draft model", "chain of 4"),
        "eagle3": Case(
            "EAGLE-3", "chain of 4", "recipes/demo-eagle3", ("drafter={kind: eagle3, model: head, tokens: 4}",)
        ),
        "dflash": Case("DFlash", "block of 8", "recipes/demo-dflash"),
        "medusa": Case(
            "Medusa", "chain of 4", "recipes/demo-medusa", ("drafter={kind: medusa, model: head, tokens: 4}",)
        ),
    },
    "precisions": {
        "float32": Case("float32", "chain of 8", settings=LOOKUP),
        **{
            name: Case(name, "chain of 8", settings=(*LOOKUP, f"precision.target={name}"))
            for name in ("bfloat16", "int8", "int4")
        },
    },
}
"""File of docs/figures -> its rows, in their order."""


def commands(case: Case, output: str) -> list[tuple[str, ...]]:
    """Return the arguments of `speccompile` for a row: the build, the benchmark in full rounds, and as users run it."""
    return [
        case.build(output),
        ("bench", output, *BENCH, "--fixed-draft-length"),
        ("bench", output, *BENCH),
    ]


def measure(name: str) -> dict[str, Any]:
    """Build and benchmark all rows of a measurement. Raise CalledProcessError if one fails."""
    rows, versions = {}, {}
    for key, case in MEASUREMENTS[name].items():
        print(f"{name}: {case.label}", file=sys.stderr)
        output = f"{BUNDLES}/{name}/{key}"
        build, fixed, adaptive = commands(case, output)
        if not (ROOT / output / "manifest.json").is_file():
            _run(build)
        reports = {"fixed": json.loads(_run(fixed)), "adaptive": json.loads(_run(adaptive))}
        versions = reports["fixed"]["versions"]
        rows[key] = {
            "label": case.label,
            "drafts": case.drafts,
            **{way: _reduce(report) for way, report in reports.items()},
        }
        rows[key] |= {part: reports["fixed"][part] for part in ("costs", "roofline")}
    return {
        "processor": processor()["name"],
        "architecture": platform.machine(),
        "cores": available_cores(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions,
        "commands": said_commands(name),
        "inputs": inputs(name),
        "rows": rows,
    }


def said_commands(name: str) -> list[str]:
    """Return the command lines of all rows."""
    lines = []
    for key, case in MEASUREMENTS[name].items():
        lines += [_said(one) for one in commands(case, f"{BUNDLES}/{name}/{key}")]
    return lines


def _said(arguments: tuple[str, ...]) -> str:
    return " ".join(["speccompile", *(f"'{part}'" if " " in part else part for part in arguments)])


def inputs(name: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that a measurement depends on: recipes, models and prompts."""
    folders = {ROOT / case.recipe for case in MEASUREMENTS[name].values()} | {ROOT / "recipes/demo"}
    kept = {".safetensors", ".yaml", ".jsonl"}
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.suffix in kept)
    return {
        file.relative_to(ROOT).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name in ("recipe.yaml", "prompts.jsonl") or file.suffix == ".safetensors"
    }


def _reduce(report: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a report of `bench` that figures show, without latencies and quantiles."""
    modes = {mode: {key: report[mode][key] for key in KEPT_OF_MODES} for mode in ("speculative", "autoregressive")}
    return {key: report[key] for key in KEPT} | modes


def _run(arguments: tuple[str, ...]) -> str:
    command = [sys.executable, "-m", "speccompile", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
