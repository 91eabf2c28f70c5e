#!/usr/bin/env python3
"""Measure schedulers under the load of load.py in processor time of one thread, which is valid on a busy machine too.

    .venv/bin/python scripts/serving/processor_time.py build/demo --users 16
    peers/openvino/bin/python scripts/serving/processor_time.py FOLDER --openvino --users 16

The scheduler is Python's `Bundle.serve`, which decides as the one in C++ does, without drafts, or OpenVINO GenAI's
continuous batching over a model that openvino_engine.py has converted. Nothing else runs in the process: no HTTP, no
client. Each user asks again when answered. Prints what load.py prints, per second and in milliseconds of that time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from statistics import quantiles
from time import process_time
from typing import Any

Poll = Callable[[], tuple[int, bool]]
"""Function that returns the number of new tokens since its last call, and whether the request has ended."""


@dataclass(eq=False)
class Asked:
    """A request: its start, the times at which tokens came, and their number."""

    poll: Poll
    start: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0

    def read(self, now: float) -> bool:
        """Record the tokens that have come until `now`. Return whether the request has ended."""
        tokens, ended = self.poll()
        if tokens:
            self.times.append(now)
        self.tokens += tokens
        return ended


def ours(args: argparse.Namespace) -> tuple[Callable[[str], Poll], Callable[[], None]]:
    """Return functions that submit a prompt to a bundle's scheduler, and that run one step of it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from speccompile import Bundle
    from speccompile.serving.scheduler import Limits, SessionFolder
    from speccompile.serving.scheduler.scheduler import Scheduler

    bundle = Bundle.open(args.folder, threads=1)
    sessions = SessionFolder(Path(tempfile.mkdtemp())) if args.keep_texts else None
    scheduler = Scheduler(bundle, Limits(requests=args.users), clock=process_time, sessions=sessions)

    def submit(prompt: str) -> Poll:
        request = scheduler.submit(prompt, max_new_tokens=args.tokens, ignore_eos=True, autoregressive=True)

        def poll() -> tuple[int, bool]:
            tokens = 0
            try:
                while (delta := request.poll()) is not None:
                    tokens += len(delta.token_ids)
            except StopIteration:
                return tokens, True
            return tokens, False

        return poll

    return submit, scheduler.step


def openvino(args: argparse.Namespace) -> tuple[Callable[[str], Poll], Callable[[], None]]:
    """Return the same functions for OpenVINO GenAI's pipeline."""
    from openvino_engine import generation_config, opened

    library, pipeline = opened(args.folder, args.users, 1)
    numbers = count()

    def submit(prompt: str) -> Poll:
        handle: Any = pipeline.add_request(next(numbers), prompt, generation_config(library, args.tokens))

        def poll() -> tuple[int, bool]:
            tokens = 0
            while handle.can_read():
                tokens += sum(len(output.generated_ids) for output in handle.read().values())
            return tokens, handle.get_status() != library.GenerationStatus.RUNNING

        return poll

    return submit, pipeline.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a bundle, or with --openvino a converted model")
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--keep-texts", action="store_true", help="a bundle's, in a folder; OpenVINO always does")
    parser.add_argument("--prompts", type=Path, default=Path("recipes/demo/prompts.jsonl"))
    for name, default in (("--users", 16), ("--requests", 48), ("--tokens", 48)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    lines = args.prompts.read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines if line]
    submit, step = (openvino if args.openvino else ours)(args)
    numbers = iter(range(args.requests))

    def asked(users: int, now: float) -> list[Asked]:
        return [Asked(submit(prompts[number % len(prompts)]), now) for number in islice(numbers, users)]

    begin, ended = process_time(), list[Asked]()
    live = asked(args.users, begin)
    while live:
        step()
        now = process_time()
        over = [each for each in live if each.read(now)]
        ended += over
        live = [each for each in live if each not in over] + asked(len(over), now)
    seconds = process_time() - begin
    assert all(each.tokens == args.tokens for each in ended), "an answer is not as long as asked for"
    firsts = [1000 * (each.times[0] - each.start) for each in ended]
    gaps = [1000 * (each.times[-1] - each.times[0]) / max(1, args.tokens - 1) for each in ended]
    first, gap = (quantiles(values, n=20, method="inclusive") for values in (firsts, gaps))
    print(f"{args.requests / seconds:.2f} requests/s  first token {first[9]:.0f} (p95 {first[18]:.0f})"
          f"  each token {gap[9]:.1f} (p95 {gap[18]:.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
