#!/usr/bin/env python3
"""Measure `speccompile serve` and llama.cpp's server with guidellm and aiperf: a table on stderr, JSON on stdout.

    scripts/serving/setup build/serving       # once: environments of guidellm, aiperf and llama.cpp
    .venv/bin/python scripts/serving/load.py build/demo build/serving --tokenizer recipes/demo/target > figures.json

BUNDLE is served with speculation, then without, then both by `speccompile-native serve` where it is compiled. Each tool
streams from /v1/completions for a number of concurrent users; a user sends the next request when the last is answered.
Prompts are real text from a file: acceptance on random prompts says nothing. The machine's load before each run is in
the JSON: figures of a busy machine are not comparable.

Where FOLDER has llama_cpp, llama-server then serves the target, a Llama, in float32 or in --weights, with the bundle's
number of slots, length, threads and, if it is greedy, greedy decoding. All other options are llama-server's defaults,
such as keys and values in float16. With --drafter it serves once more with that draft model; the demo's is
recipes/demo/drafter. --keep-texts lets llama-server keep prompts that have left their slots, in up to 8 GB of memory,
and gives our servers a folder for them (`--sessions`). openvino is the engine inside OpenVINO Model Server, over the
model in --openvino: see openvino_engine.py; it always keeps prefixes.

Columns: requests per second; milliseconds to the first token, median and 95th percentile; milliseconds for each later
token, median and 95th percentile over requests. `--tool plain` is a client of our own, which needs no environment. A
run whose answers have another length than requested has failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import httpx2
import tool_aiperf
import tool_guidellm
import tool_plain
from figures import Figures, Job
from servers import OURS, Server, serving, serving_llama_cpp, serving_openvino
from write_gguf import WEIGHTS

from speccompile.native.locate import locations

TOOLS = {"plain": tool_plain.measure, "guidellm": tool_guidellm.measure, "aiperf": tool_aiperf.measure}
MODES = (
    "speculative",
    "autoregressive",
    "native",
    "native, autoregressive",
    "openvino",
    "llama.cpp",
    "llama.cpp, draft",
)

Serving = Callable[[], AbstractContextManager[Server]]


@dataclass(frozen=True)
class Run:
    """What a tool measured with so many users. failed: why there are no figures, or what is wrong with them."""

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
        for mode, start in _modes(arguments, Path(scratch)).items():
            with start() as server:
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
        "--tokenizer", type=Path, required=True, help="the target's folder: tools count with it, llama.cpp serves it"
    )
    parser.add_argument("--drafter", type=Path, help="a language model's folder, to draft for llama.cpp")
    parser.add_argument("--prompts", type=Path, default=Path("recipes/demo/prompts.jsonl"))
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--mode", action="append", choices=MODES, help="by default all that can run")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--requests", type=int, default=24, help="of each run")
    parser.add_argument("--tokens", type=int, default=64, help="new ones of each request")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep-texts", action="store_true", help="prompts go on from any text that was served before")
    parser.add_argument("--openvino", type=Path, metavar="FOLDER", help="a model that openvino_engine.py has converted")
    parser.add_argument("--weights", choices=WEIGHTS, default="F32", help="of llama.cpp's matrices; give the bundle's")
    return parser.parse_args()


def _modes(arguments: argparse.Namespace, scratch: Path) -> dict[str, Serving]:
    """Return those that were asked for and can run, each with how it is served."""
    threads = ["--threads", str(arguments.threads)]

    def ours(name: str, *options: str, program: tuple[str, ...] = OURS) -> Serving:
        kept = ["--sessions", str(scratch / name)] if arguments.keep_texts else []
        return partial(serving, arguments.bundle, [*options, *threads, *kept], program)

    found = {"speculative": ours("speculative"), "autoregressive": ours("autoregressive", "--autoregressive")}
    native = locations()
    if native.command and native.onnxruntime:
        own, program = ("--onnxruntime", str(native.onnxruntime)), (str(native.command),)
        found["native"] = ours("native", *own, program=program)
        found["native, autoregressive"] = ours("native-autoregressive", "--autoregressive", *own, program=program)
    if arguments.openvino:
        python, log = arguments.folder / "openvino" / "bin" / "python", scratch / "openvino.log"
        found["openvino"] = partial(
            serving_openvino, python, arguments.openvino, arguments.bundle, arguments.threads, log
        )
    wanted = set(arguments.mode or MODES)
    if (arguments.folder / "llama_cpp" / "installed").exists() and wanted - set(found):
        found |= _llama_cpp(arguments, threads, scratch)
    if arguments.mode and wanted - set(found):
        raise SystemExit(
            f"received the modes {arguments.mode}, expected some of {list(found)}\n"
            "hint: scripts/serving/setup makes llama.cpp's server; drafts need --drafter, openvino --openvino"
        )
    return {mode: start for mode, start in found.items() if mode in wanted}


def _llama_cpp(arguments: argparse.Namespace, threads: list[str], scratch: Path) -> dict[str, Serving]:
    environment = arguments.folder / "llama_cpp"
    program, log = environment / "bin" / "llama-server", scratch / "llama_cpp.log"
    kept = [] if arguments.keep_texts else ["--cache-ram", "0"]
    model = _gguf(environment, arguments.tokenizer, scratch / "target.gguf", arguments.weights)
    options = [*threads, *kept, "--model", model]
    found: dict[str, Serving] = {"llama.cpp": partial(serving_llama_cpp, program, arguments.bundle, options, log)}
    if arguments.drafter:
        drafter = _gguf(environment, arguments.drafter, scratch / "drafter.gguf", arguments.weights)
        options = [*options, "--model-draft", drafter, "--spec-type", "draft-simple"]  # without it nothing drafts
        found["llama.cpp, draft"] = partial(serving_llama_cpp, program, arguments.bundle, options, log)
    return found


def _gguf(environment: Path, model: Path, file: Path, weights: str) -> str:
    """Convert a model to a GGUF file, and return its path."""
    program = Path(__file__).with_name("write_gguf.py")
    command = (environment / "bin" / "python", program, model, file, "--weights", weights)
    subprocess.run([str(part) for part in command], check=True)
    return str(file)


def _prompts(file: Path, tokens: int, scratch: Path) -> Path:
    """Write the prompts, each with the number of tokens to request. Return the file."""
    lines = [json.loads(line)["prompt"] for line in file.read_text(encoding="utf-8").splitlines() if line]
    found = scratch / "prompts.jsonl"
    found.write_text("".join(json.dumps({"prompt": each, "output_tokens_count": tokens}) + "\n" for each in lines))
    return found


def _run(tool: str, environment: Path, mode: str, job: Job) -> Run:
    run = Run(tool, mode, job.users, os.getloadavg()[0])
    try:
        figures = TOOLS[tool](environment, job)
        short = f"answers of {figures.tokens:.1f} tokens, expected {job.tokens}"
        return replace(run, figures=figures, failed=short if round(figures.tokens, 1) != job.tokens else "")
    except subprocess.CalledProcessError as error:
        return replace(run, failed=(error.stderr or error.stdout or "without a word").strip().splitlines()[-1])
    except httpx2.HTTPError as error:
        return replace(run, failed=f"{type(error).__name__}: {error}")


def _line(run: Run) -> str:
    title = f"{run.tool:<9} {run.mode:<22} {run.users:>2} users  load {run.load:5.1f}"
    if run.failed or run.figures is None:
        return f"{title}  failed: {run.failed}"
    found = run.figures
    return (
        f"{title}  {found.requests_per_second:6.2f} requests/s  first token {found.first_token_p50:7.1f} ms"
        f" (p95 {found.first_token_p95:7.1f})  each token {found.token_p50:6.2f} ms"
        f" (p95 {found.token_p95:6.2f})"
    )


if __name__ == "__main__":
    main()
