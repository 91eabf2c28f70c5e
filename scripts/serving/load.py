#!/usr/bin/env python3
"""Ask `speccompile serve` as tools of others do: a table on stderr, JSON on stdout.

    scripts/serving/setup build/serving       # once: environments of guidellm and aiperf
    .venv/bin/python scripts/serving/load.py build/demo build/serving --tokenizer recipes/demo/target > figures.json

BUNDLE is served with speculation, then without; each tool asks /v1/completions for streams, with so many users at once,
each of whom asks again when it has been answered. Prompts are a file's own, of real text: random ones misjudge
speculation. The machine's load before each run is in the JSON: on a busy machine nothing here means much.

Columns: requests per second; milliseconds to the first token, median and 95th percentile; milliseconds for each token
behind the first, median over requests.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tool_aiperf
import tool_guidellm
from figures import Figures, Job

TOOLS = {"guidellm": tool_guidellm.measure, "aiperf": tool_aiperf.measure}


@dataclass(frozen=True)
class Run:
    """What a tool measured with so many users. failed: its last words, where it measured nothing."""

    tool: str
    mode: str
    users: int
    load: float
    figures: Figures | None = None
    failed: str = ""


def main() -> None:
    arguments = _arguments()
    runs = []
    with tempfile.TemporaryDirectory() as scratch:
        prompts = _prompts(arguments.prompts, arguments.tokens, Path(scratch))
        for mode in ("speculative", "autoregressive"):
            options = ["--autoregressive"] * (mode == "autoregressive") + ["--threads", str(arguments.threads)]
            with serving(arguments.bundle, options) as server:
                job = Job(
                    server.address, arguments.tokenizer, prompts, 1, arguments.requests, arguments.tokens, Path(scratch)
                )
                for tool in arguments.tool or TOOLS:
                    for users in arguments.users:
                        runs.append(_run(tool, arguments.folder / tool, mode, replace(job, users=users)))
                        print(_line(runs[-1]), file=sys.stderr)
    print(json.dumps([asdict(run) for run in runs], indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("folder", type=Path, help="of the tools' environments")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="the target's folder, for the tools to count with"
    )
    parser.add_argument("--prompts", type=Path, default=Path("recipes/demo/prompts.jsonl"))
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--requests", type=int, default=24, help="of each run")
    parser.add_argument("--tokens", type=int, default=64, help="new ones of each request")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _prompts(file: Path, tokens: int, scratch: Path) -> Path:
    """The prompts, with how many tokens are asked for."""
    lines = [json.loads(line)["prompt"] for line in file.read_text(encoding="utf-8").splitlines() if line]
    found = scratch / "prompts.jsonl"
    found.write_text("".join(json.dumps({"prompt": each, "output_tokens_count": tokens}) + "\n" for each in lines))
    return found


@dataclass(frozen=True)
class Server:
    """One that is ready."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(bundle: Path, options: list[str]) -> Iterator[Server]:
    """A server of its own process, told to end behind it; it may have been killed by then."""
    command = [sys.executable, "-m", "speccompile", "serve", str(bundle), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit(f"the server ended with {process.wait()}")
        while not _is_ready(address):
            time.sleep(0.2)
        yield Server(address, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _run(tool: str, environment: Path, mode: str, job: Job) -> Run:
    run = Run(tool, mode, job.users, os.getloadavg()[0])
    try:
        return replace(run, figures=TOOLS[tool](environment, job))
    except subprocess.CalledProcessError as error:
        return replace(run, failed=(error.stderr or error.stdout or "without a word").strip().splitlines()[-1])


def _line(run: Run) -> str:
    title = f"{run.tool:<9} {run.mode:<15} {run.users:>2} users  load {run.load:5.1f}"
    if run.figures is None:
        return f"{title}  failed: {run.failed}"
    found = run.figures
    return (
        f"{title}  {found.requests_per_second:6.2f} requests/s  first token {found.first_token_p50:7.1f} ms"
        f" (p95 {found.first_token_p95:7.1f})  each token {found.token_p50:6.2f} ms"
    )


if __name__ == "__main__":
    main()
