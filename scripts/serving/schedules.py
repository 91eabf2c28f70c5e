#!/usr/bin/env python3
"""Serve random schedules of requests over bundles, and compare every answer with what `Bundle.generate` gives alone.

scripts/serving/schedules.py [--schedules N] [--requests N] [--seed N] BUNDLE ...
scripts/serving/schedules.py [..] --tiny FOLDER     # bundles of tiny models for every kind of drafter, built there once

Requests come at random times, begin alike or not, sample or not, are cancelled or not; their prompts are read in
chunks of any size, rows are reused and copied. Tokens, texts and log-probabilities must be the same, bit for bit.
Prints a line for each bundle; ends with the first difference.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from speccompile.runtime import Bundle
from tests.serving_schedules import Alone, play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE")
    parser.add_argument("--tiny", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", help="of the tiny bundles those whose names have this text")
    parser.add_argument("--schedules", type=int, default=20)
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    opened = ((path.name, Bundle.open(path, threads=1)) for path in args.bundles)
    print(f"{'bundle':44} {'schedules':>9} {'sequences':>9} {'tokens':>7} {'reused':>7} {'seconds':>8}")
    for name, bundle in chain(opened, tiny(args.tiny, args.only) if args.tiny else ()):
        start, alone, found = time.perf_counter(), Alone(bundle), []
        for seed in range(args.seed, args.seed + args.schedules):
            found += play(bundle, seed, args.requests, alone)
        tokens, reused = sum(len(each.token_ids) for each in found), sum(each.cached_tokens for each in found)
        seconds = time.perf_counter() - start
        print(f"{name:44} {args.schedules:9} {len(found):9} {tokens:7} {reused:7} {seconds:8.1f}", flush=True)


def tiny(folder: Path, only: str) -> Iterator[tuple[str, Bundle]]:
    """Return bundles of tiny models, built where they are not yet."""
    from tests.compile.combinations import Workshop
    from tests.compile.test_serving_exact import KINDS

    workshop = Workshop(folder)
    for kind in KINDS:
        if only in str(kind):
            yield str(kind), Bundle.open(workshop.bundle(kind), threads=1, proposer=kind.proposer)


if __name__ == "__main__":
    main()
