"""Try every causal language model class that transformers has, and say of each what becomes of it.

    python -m scripts.architectures                          # all of them, about 15 minutes with two workers
    python -m scripts.architectures --only lfm2 --only bloom # some
    python -m scripts.architectures --resume                 # those that are not in the table yet
    python -m scripts.architectures --windows --only lfm2    # whether one that is proven is exact on this processor
    python -m scripts.architectures --json                   # the rows to stdout, nothing written

Run from the checkout's root. Each class is tried in a process of its own, with a limit of time and memory. The rows are
kept in scripts/architectures/table.json, and docs/reference/support.md has their table
after `scripts/docs --write`. Progress is on stderr. Exit status 1:
a class compiles to something else than transformers computes, or its attempt broke down.
"""

import argparse
import json
import sys
from dataclasses import replace

import transformers

from scripts.architectures.configurations import model_types
from scripts.architectures.row import PRECISIONS
from scripts.architectures.sweep import sweep
from scripts.architectures.table import read_rows, summary, write_rows
from speccompile.machine.system import processor_title


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TYPE", help="a model_type, may be given again")
    parser.add_argument("--status", action="append", default=[], help="try those that have this status in the table")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="compare windows in this one alone")
    parser.add_argument(
        "--windows", action="store_true", help="of proven types compare windows, and prove nothing again"
    )
    parser.add_argument("--resume", action="store_true", help="leave out those that are in the table")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON lines, and leave the table alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=240, help="the limit of one attempt")
    parser.add_argument("--gigabytes", type=int, default=6, help="the limit of one attempt's memory")
    return parser.parse_args()


def main() -> int:
    given, known = arguments(), read_rows()
    unknown = sorted({*given.only} - {*model_types()})
    if unknown:
        print(f"received {', '.join(unknown)}, expected transformers' causal language models", file=sys.stderr)
        return 2
    wanted = given.only or [name for name in model_types() if not (given.resume and name in known)]
    if given.status:
        wanted = [name for name in wanted if name in known and known[name].status in given.status]
    proven = {name: row for name, row in known.items() if given.windows and row.status == "proven"}
    found, precisions = {}, [each for each in PRECISIONS if each in (given.precision or PRECISIONS)]
    for row in sweep(wanted, given.workers, given.seconds, given.gigabytes, precisions, proven):
        row = replace(row, processors=(processor_title(),)).behind(known.get(row.model_type))
        found[row.model_type] = row
        print(f"[{len(found)}/{len(wanted)}] {row.model_type}: {row.status}: {row.reason or row.why}", file=sys.stderr)
        if given.json:
            print(json.dumps(row.to_json()), flush=True)
        else:
            write_rows(known | found, transformers.__version__)
    print(summary((found if given.json else known | found).values()), file=sys.stderr)
    return int(any(row.status in ("wrong", "broken") for row in found.values()))


if __name__ == "__main__":
    sys.exit(main())
