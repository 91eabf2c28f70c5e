"""What the peers share: prompts, clocks, memory, the command line. Standard library only: each has its own packages.

A peer is a file with FORMS, `prepare` and `Session`; run as a program it has two commands:

    peer_NAME.py prepare MODEL FOLDER FORM       # convert a local Hugging Face folder
    peer_NAME.py measure FOLDER FORM [--threads N] [--repeats N] [..]      # DEFAULTS has the rest

Both take --draft-tokens K, and `prepare` --drafter MODEL: then a smaller model drafts K tokens a round.

`measure` prints one JSON object a generation: greedy, without an end-of-sequence token, from prompts of random tokens,
another for every generation. Speeds leave the warm-up out.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

WARM_UP_TOKENS = 16
WARM_UP_PROMPT = 128
"""Maximum length of the warm-up's prompt: a longer one would only take time."""
LONG_PROMPT = 2048
"""Prompts of more tokens are read once: costs of windows are not measured behind them."""
LONGEST = 33_280
"""Positions of models for long contexts: a prompt of 32k tokens, and an answer."""
DEFAULTS = {"threads": 1, "prompt-tokens": 128, "new-tokens": 128, "repeats": 1, "seed": 0, "vocabulary": 32000}


@dataclass(frozen=True)
class Form:
    """One way to run a peer. column: fp32, bf16, 8-bit, 4-bit or gguf; long: of long_contexts.py. weights: the name of
    what `prepare` writes; forms share it.

    conversion, settings: what the peer's own functions take to write it and to run it.
    """

    column: str
    weights: str
    conversion: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generated:
    """New tokens, and seconds from the start to the first of them, and to the last. rounds: verified windows after the
    first token, where the peer tells."""

    token_ids: list[int]
    first_seconds: float
    seconds: float
    rounds: int | None = None


class Session(Protocol):
    """A loaded model."""

    def generate(self, prompt: list[int], new_tokens: int) -> Generated: ...


@dataclass(frozen=True)
class Pair:
    """A peer's own speculation with a smaller model. prepare: takes the target, the drafter, the folder, the form and
    the number of drafts; open: the folder, the form, the number of threads and of drafts."""

    prepare: Callable[[Path, Path, Path, Form, int], None]
    open: Callable[[Path, Form, int, int], Session]


@dataclass(frozen=True)
class Peer:
    """One peer. open: takes the folder, the form and the number of threads. more: further figures of a generation."""

    package: str
    forms: dict[str, Form]
    prepare: Callable[[Path, Path, Form], None]
    open: Callable[[Path, Form, int], Session]
    more: Callable[[Any, list[int], list[int]], dict[str, Any]] = lambda session, prompt, token_ids: {}
    pair: Pair | None = None


def side_by_side(prepare: Callable[[Path, Path, Form], None]) -> Callable[[Path, Path, Path, Form, int], None]:
    """Return the function that prepares both models of a pair, each with `prepare`, in `target` and `drafter`."""

    def prepare_both(target: Path, drafter: Path, folder: Path, form: Form, _: int) -> None:
        folder.mkdir(parents=True)
        prepare(target, folder / "target", form)
        prepare(drafter, folder / "drafter", form)

    return prepare_both


def stepwise(first: Callable[[], int], following: Callable[[], int], new_tokens: int) -> Generated:
    """Time a peer that gives one token a call. first: the prefill and its token."""
    start = perf_counter()
    tokens = [first()]
    first_seconds = perf_counter() - start
    tokens += [following() for _ in range(new_tokens - 1)]
    return Generated(tokens, first_seconds, perf_counter() - start)


def vocabulary_size(model: Path) -> int:
    """Return the vocabulary size of the model in a Hugging Face folder or a GGUF file."""
    if model.is_file():
        from speccompile.recipe.gguf import gguf_folder

        folder = gguf_folder(model)
        assert folder is not None, f"{model} is no GGUF file"
        model = folder
    size: int = json.loads((model / "config.json").read_text())["vocab_size"]
    return size


def with_tokenizer(model: Path, folder: Path) -> Path:
    """Make a folder with the same model and, where it has none, a tokenizer and a last token: converters need
    both. No measurement uses them.
    """
    if (model / "tokenizer.json").exists():
        return model
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    words = {f"<{token}>": token for token in range(vocabulary_size(model))}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<0>"},
    }
    classes = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<0>", "eos_token": "<0>"}
    changed = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": classes,
        "config.json": json.loads((model / "config.json").read_text()) | {"eos_token_id": 0},
    }
    for name, content in changed.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def with_positions(model: Path, folder: Path, positions: int) -> Path:
    """Make a folder with the same model for so many positions: the weights of a random one know none."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": positions}
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def memory_megabytes() -> dict[str, float]:
    """Return the resident memory of this process: now, its anonymous part (not mapped from files), and at its peak."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    names = {"resident": "VmRSS", "anonymous": "RssAnon", "peak": "VmHWM"}
    return {name: int(rows[row].split()[0]) / 1024 for name, row in names.items()}


def main(peer: Peer) -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("model", type=Path)
    prepare.add_argument("--drafter", type=Path)
    measure = commands.add_parser("measure")
    for command in (prepare, measure):
        command.add_argument("folder", type=Path)
        command.add_argument("form", choices=peer.forms)
        command.add_argument("--draft-tokens", type=int, default=0)
    for name, default in DEFAULTS.items():
        measure.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    form = peer.forms[options.form]
    if options.draft_tokens and peer.pair is None:
        raise SystemExit(f"{peer.package}: no speculation with a smaller model")
    if options.command == "prepare" and peer.pair and options.draft_tokens:
        peer.pair.prepare(options.model, options.drafter, options.folder, form, options.draft_tokens)
    elif options.command == "prepare":
        peer.prepare(options.model, options.folder, form)
    else:
        _measure(peer, options)


def _measure(peer: Peer, options: argparse.Namespace) -> None:
    chosen = random.Random(options.seed)
    start = perf_counter()
    form, drafts = peer.forms[options.form], options.draft_tokens
    if peer.pair and drafts:
        session = peer.pair.open(options.folder, form, options.threads, drafts)
    else:
        session = peer.open(options.folder, form, options.threads)
    load_seconds = perf_counter() - start
    for repeat in range(-1, options.repeats):
        size = min(options.prompt_tokens, WARM_UP_PROMPT) if repeat < 0 else options.prompt_tokens
        prompt = [chosen.randrange(options.vocabulary) for _ in range(size)]
        wall, cpu = perf_counter(), process_time()
        made = session.generate(prompt, WARM_UP_TOKENS if repeat < 0 else options.new_tokens)
        cpus_busy = (process_time() - cpu) / (perf_counter() - wall)
        if repeat >= 0:
            measured = {"cpus_busy": cpus_busy, "load_seconds": load_seconds} | _speeds(options, made)
            more = {} if drafts or size > LONG_PROMPT else peer.more(session, prompt, made.token_ids)
            print(json.dumps({"version": version(peer.package)} | measured | more), flush=True)


def _speeds(options: argparse.Namespace, made: Generated) -> dict[str, Any]:
    received, expected = len(made.token_ids), options.new_tokens
    assert received == expected, f"received {received} new tokens, expected {expected}"
    return {
        "tokens_per_second": (expected - 1) / (made.seconds - made.first_seconds),
        "first_token_seconds": made.first_seconds,
        "prefill_tokens_per_second": options.prompt_tokens / made.first_seconds,
        "memory_megabytes": memory_megabytes(),
        "token_ids": made.token_ids,
        "tokens_a_round": (expected - 1) / made.rounds if made.rounds else None,
    }


def quiet_environment(threads: int) -> dict[str, str]:
    """Return the environment for a peer: no more threads than asked for, no telemetry, no network."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "ORT_DISABLE_TELEMETRY": "1"}
    return os.environ | counts | offline | {"TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
