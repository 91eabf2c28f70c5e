#!/usr/bin/env python3
"""Measure speccompile and its peers in turns on one model: a table on stderr, JSON on stdout.

    scripts/peers/setup FOLDER                                # once: an environment for each peer
    .venv/bin/python scripts/random_llama.py FOLDER/random    # a model; scripts/agreeing_pair.py writes another
    .venv/bin/python scripts/peers/run.py FOLDER/random FOLDER > figures.json

MODEL is a local Hugging Face folder, or a GGUF file, which is measured as it is: by llama.cpp, and by ours with its
codes (`precision: stored`). What it is converted to, ours included, is kept in FOLDER/converted: remove that to convert
again. Every generation has a process of its own, and every round of all peers
runs before the next round begins, in the other order, so that a busy moment of the machine meets all. What cannot be
prepared or run is named with its last words.

--drafter MODEL measures speculation as well where a peer has its own with a smaller model: --draft-tokens drafts a
round, all of them greedy, both models in one form. How often a peer gives the tokens of its own autoregression is told.

--all measures every form with one and with two threads, writes the medians of this processor into
docs/figures/peers.json beside those of others, and the tables of pages from it.

Speeds are medians over rounds, of greedy decoding of 128 new tokens after a prompt of 128 random ones: tokens per
second from the first new token on, and prompt tokens per second until it. "cpus" is processor time over wall time:
where it is less than the threads the machine was busy; where it is more a peer used more than it was given.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from common import Form, quiet_environment, say, vocabulary_size
from table import render, summary

from speccompile.machine.system import processor_title

ROOT = Path(__file__).resolve().parents[2]
OURS = "speccompile"
PEERS = (OURS, "openvino", "onnxruntime", "llama_cpp", "pace")
SPECULATES = (OURS, "openvino", "llama_cpp")  # with a smaller model of one's own choice
COLUMNS = ("fp32", "bf16", "8-bit", "4-bit")
GGUF = "gguf"
"""Column and form of a GGUF file."""


@dataclass
class Case:
    """A peer in one form, and what was measured of it. drafts: of a round, 0 without a drafter. failed: why nothing
    was measured, empty if something was."""

    peer: str
    name: str
    form: Form
    python: Path
    folder: Path
    threads: int
    drafts: int = 0
    measured: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""

    @property
    def title(self) -> str:
        return f"{self.peer}: {self.name}{f', {self.drafts} drafts' * bool(self.drafts)}"

    def run(self, command: str, *arguments: object) -> str:
        """Return the output of one of the peer's commands; empty, with `failed` set, where it fails."""
        script = Path(__file__).with_name(f"peer_{self.peer}.py")
        line = [str(part) for part in (self.python, script, command, *arguments)]
        environment = quiet_environment(self.threads)
        try:
            done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment)
        except FileNotFoundError:
            self.failed = f"no environment at {self.python}: run scripts/peers/setup"
            return ""
        if done.returncode:
            self.failed = f"exit status {done.returncode}: {''.join(done.stderr.strip().splitlines()[-1:])}"
        return "" if self.failed else done.stdout

    @property
    def version(self) -> str:
        """Return that of the peer's package, empty where nothing was measured."""
        return self.measured[0]["version"] if self.measured else ""

    def measured_once(self, model: Path, seed: int, *more: object) -> list[dict[str, Any]]:
        """Measure in a process of its own, and return what it told; nothing, with `failed` set, where it fails."""
        if self.failed:
            return []
        size = vocabulary_size(model)
        output = self.run("measure", self.folder, self.name, "--threads", self.threads, "--seed", seed,
                          "--vocabulary", size, "--draft-tokens", self.drafts, *more)  # fmt: skip
        if self.failed:
            say(f"{self.title}: {self.failed}")
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        self.measured += found
        return found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="one count or several, which take turns")
    parser.add_argument(
        "--all", action="store_true", help="one and two threads; write docs/figures/peers.json and the pages' tables"
    )
    parser.add_argument("--rounds", type=int, default=5, help="0 prepares only")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS)
    parser.add_argument(
        "--forms",
        nargs="+",
        choices=form_names(),
        default=form_names(),
        metavar="FORM",
        help="of the peers' forms these alone",
    )
    parser.add_argument(
        "--bundle", action="append", default=[], metavar="FORM=BUNDLE", type=named_bundle,
        help="for our float32, int8 or int4: this bundle instead of one that is built; measured speculatively as well "
        "where it has a drafter",
    )  # fmt: skip
    parser.add_argument("--drafter", type=Path, help="a smaller model's folder, with the same vocabulary")
    parser.add_argument("--draft-tokens", type=int, default=4, help="of a round (%(default)s)")
    options = parser.parse_args()
    if options.model.suffix == ".gguf":
        if options.all:
            parser.error(
                f"--all: received {options.model}, expected the Hugging Face folder that the pages' tables show"
            )
        options.columns = (GGUF,)
    if options.all:
        options.threads = [1, 2]
    if options.all and options.drafter:
        parser.error("received --all and --drafter, expected one of them: the page shows autoregression")
    return options


def main() -> None:
    options = read_options()
    cases = choose(options)
    prepare(cases, options.model, options.drafter)
    try:
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for case in cases if number % 2 == 0 else cases[::-1]:
                case.measured_once(options.model, number)
    except KeyboardInterrupt:
        say("interrupted: what was measured until now")
    say(render(cases, OURS, options.columns))
    report = [
        {
            "peer": case.peer,
            "form": case.name,
            "column": case.form.column,
            "threads": case.threads,
            "drafts": case.drafts,
            "failed": case.failed or None,
            "measured": case.measured,
        }
        for case in cases
    ]
    print(json.dumps({"model": str(options.model), "cases": report}))
    if options.all:
        write_figures(cases, options.rounds)


def write_figures(cases: list[Case], rounds: int, root: Path = ROOT) -> None:
    """Put the medians of this processor into docs/figures/peers.json, and the tables into the pages that show them."""
    rows = summary(cases, OURS, COLUMNS)
    if not rows:
        raise SystemExit("peers: nothing of ours was measured, so docs/figures/peers.json stays as it is")
    versions = {case.peer: case.version for case in cases if case.version}
    keep_figures("peers", {"rounds": rounds, "versions": versions, "rows": rows}, root)


def keep_figures(name: str, measured: dict[str, Any], root: Path = ROOT) -> None:
    """Put what was measured today on this processor into docs/figures/NAME.json, and the tables into their pages."""
    file = root / "docs" / "figures" / f"{name}.json"
    figures = json.loads(file.read_text(encoding="utf-8"))
    figures["processors"][processor_title()] = {"date": datetime.now(UTC).date().isoformat(), **measured}
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "scripts.figures"], cwd=root, check=True)


def form_names() -> list[str]:
    return [name for peer in PEERS for name in import_module(f"peer_{peer}").FORMS]


def named_bundle(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    forms = import_module(f"peer_{OURS}").FORMS
    if name not in forms or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"received {text!r}, expected {' or '.join(forms)}, '=' and a bundle's folder")
    return name, Path(folder)


def choose(options: argparse.Namespace) -> list[Case]:
    """Return the cases, column by column, peers side by side."""
    bundles = dict(options.bundle)
    cases = []
    for column in options.columns:
        found = cases_of(column, options.peers, options.model, options.folder, options.threads)
        cases += [case for case in found if case.name in options.forms]
    for case in cases:
        if case.peer == OURS and case.name in bundles:
            case.folder = bundles[case.name]
    if options.drafter is None:
        return cases
    drafter, drafts = options.drafter.resolve(), options.draft_tokens
    pairs = [(case, _drafted(case, drafter, drafts)) for case in cases]
    return [each for pair in pairs for each in pair if each.peer in SPECULATES or not each.drafts]


def _drafted(case: Case, drafter: Path, drafts: int) -> Case:
    both = case.folder.with_name(f"{case.form.weights}+{drafter.parent.name}-{drafter.name}-{drafts}")
    return Case(case.peer, case.name, case.form, case.python, both, case.threads, drafts)


def cases_of(column: str, peers: Sequence[str], model: Path, folder: Path, threads: Sequence[int]) -> list[Case]:
    """Return all forms of a column, peers side by side."""
    model, cases = model.resolve(), []
    converted = folder / "converted" / f"{model.parent.name}-{model.name}"
    for peer in peers:
        python = Path(sys.executable) if peer == OURS else folder / peer / "bin" / "python"
        for name, form in import_module(f"peer_{peer}").FORMS.items():
            if form.column == column:
                place = converted / peer / form.weights
                cases += [Case(peer, name, form, python, place, count) for count in threads]
    return cases


def prepare(cases: list[Case], model: Path, drafter: Path | None = None) -> None:
    """Convert the model for each case, once for those that share what it is converted to."""
    first: dict[Path, Case] = {}
    for case in cases:
        if case.folder not in first:
            convert(case, model, drafter)
        case.failed = first.setdefault(case.folder, case).failed


def convert(case: Case, model: Path, drafter: Path | None) -> None:
    """Convert the model, unless an earlier run has."""
    if case.folder.exists():
        return
    say(f"preparing {case.title}")
    unfinished = case.folder.with_name(f"{case.folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    more = ["--drafter", drafter, "--draft-tokens", case.drafts] if case.drafts else []
    case.run("prepare", model, unfinished, case.name, *more)
    if case.failed:
        say(f"{case.title}: {case.failed}")
    else:
        unfinished.rename(case.folder)


if __name__ == "__main__":
    main()
