"""Measure the figures of README and pages, and write them where they are shown.

    python -m scripts.figures methods     # measure again, then write all figures: about 7 minutes on an idle machine
    python -m scripts.figures             # write the figures from docs/figures/*.json, without measuring
    python -m scripts.figures --check     # exit status 1 if a figure is stale, with a line for each

Run from the checkout's root. A page shows a figure between the marks `<!-- figure: NAME -->` and `<!-- /figure -->`.
A figure is stale when a page, a plot, a command, or a model or recipe that was measured has changed since.
"""

import argparse
import json
import sys

from scripts.figures.measure import FOLDER, MEASUREMENTS, measure
from scripts.figures.pages import stale, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", metavar="NAME", help=f"to make again: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--check", action="store_true", help="change nothing")
    args = parser.parse_args()
    if unknown := sorted({*args.measurements} - MEASUREMENTS.keys()):
        parser.error(f"received {', '.join(unknown)}, expected {' or '.join(MEASUREMENTS)}")
    if args.check and args.measurements:
        parser.error("received --check and measurements, expected one of them")
    if args.check:
        found = list(stale())
        print(*found, sep="\n", end="\n" * bool(found), file=sys.stderr)
        return int(bool(found))
    for name in args.measurements:
        (FOLDER / f"{name}.json").write_text(json.dumps(measure(name), indent=1) + "\n", encoding="utf-8")
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
