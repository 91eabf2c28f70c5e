"""Measure a prompt's first token after restoring a session beside that after reading the prompt.

    python -m scripts.restore BUNDLE [--tokens 4096] [--runs 3] [--native speccompile-native]

The prompt is random tokens. Each run is a process of its own, which opens the bundle, and then either reads the prompt
or reads the session that a first process has written: its file is in the page cache, and its hash is compared. In
Python the time from the opened bundle to the first token; of `speccompile-native generate --session` the command's
whole time less that for a prompt of one token, which saves the session again. Prints medians, and their ratio.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from speccompile.machine.system import processor
from speccompile.runtime import Bundle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--native", metavar="COMMAND", help="measure this speccompile-native as well")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(_first_token(args))
        return
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "session"
        _save(args, saved)
        print(f"{processor()['name']}: {args.tokens} tokens, {saved.stat().st_size / 1e6:.1f} MB")
        _report("Python", lambda session: _python(args, session), args.runs, saved)
        if args.native:
            opened = statistics.median(_native(args, None, 1) for _ in range(args.runs))
            _report("C++", lambda session: _native(args, session, args.tokens) - opened, args.runs, saved)


def _prompt(bundle: Bundle, tokens: int) -> list[int]:
    found: list[int] = np.random.default_rng(0).integers(3, bundle.manifest.vocabulary_size, tokens).tolist()
    return found


def _save(args: argparse.Namespace, path: Path) -> None:
    with Bundle.open(args.bundle, threads=args.threads) as bundle:
        bundle.generate(_prompt(bundle, args.tokens), session=path, max_new_tokens=1)


def _first_token(args: argparse.Namespace) -> float:
    """Return the seconds from an opened bundle to one token."""
    with Bundle.open(args.bundle, threads=args.threads) as bundle:
        prompt, start = _prompt(bundle, args.tokens), perf_counter()
        if args.session is not None:
            bundle.load_session(args.session)
        found = bundle.generate(prompt, max_new_tokens=1)
        assert (found.cached_tokens > 0) == (args.session is not None)
        return perf_counter() - start


def _python(args: argparse.Namespace, session: Path | None) -> float:
    command = [sys.executable, "-m", "scripts.restore", str(args.bundle), "--child", "--tokens", str(args.tokens)]
    command += ["--threads", str(args.threads), *(["--session", str(session)] if session else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _native(args: argparse.Namespace, session: Path | None, tokens: int) -> float:
    """Return the seconds of a command that says one token. The session is a copy, which it writes again."""
    with Bundle.open(args.bundle, threads=args.threads) as bundle:
        prompt = ",".join(map(str, _prompt(bundle, args.tokens)[:tokens]))
    command = [args.native, "generate", str(args.bundle), "--token-ids", prompt, "-n", "1"]
    command += ["--threads", str(args.threads)]
    if session is None:
        return _seconds(command)
    copy = session.with_suffix(".copy")
    shutil.copy(session, copy)
    return _seconds([*command, "--session", str(copy)])


def _seconds(command: list[str]) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return perf_counter() - start


def _report(name: str, measure: Callable[[Path | None], float], runs: int, saved: Path) -> None:
    read, restored = (statistics.median(measure(session) for _ in range(runs)) for session in (None, saved))
    print(f"{name}: prefill {read:.3f} s, restored {restored:.3f} s: {read / restored:.1f} times sooner")


if __name__ == "__main__":
    main()
