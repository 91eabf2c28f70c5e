"""Measure the kernels: `roofline`, `attention`, `instructions` and `emulated`."""

import argparse
import sys

from scripts.performance.attention import Shape, attention_table, measure_attention
from scripts.performance.emulated import count_emulated, emulated_table
from scripts.performance.instructions import (
    HISTORY,
    Count,
    Key,
    compiler,
    count_instructions,
    grown,
    read_history,
    write_history,
)
from scripts.performance.program import CROSS, PerfError, compiled
from scripts.performance.roofline import as_json, measure_roofline, table
from speccompile.machine.system import processor


def main() -> int:
    """Return 0, 1 where instructions have grown, 2 for what cannot be measured."""
    parser = argparse.ArgumentParser(prog="scripts/perf", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    roofline = parts.add_parser("roofline", help="times of products beside what bounds them, on one core")
    roofline.add_argument("--path", default="best", help="of the kernels: avx2, avx512_vnni, ..; the best by default")
    roofline.add_argument("--seconds", type=float, default=0.1, help="of measuring each precision and window")
    roofline.add_argument("--json", action="store_true")
    attention = parts.add_parser("attention", help="times of float, int8 and {int8, int4} caches in turns, on one core")
    attention.add_argument(
        "--path", default="best", help="as of roofline; the instructions are those of avx2 or scalar"
    )
    attention.add_argument("--context", type=int, nargs="+", default=[4096, 16384], help="committed tokens")
    attention.add_argument("--window", type=int, nargs="+", default=[1, 5], help="tokens that are verified")
    attention.add_argument("--heads", type=int, default=16)
    attention.add_argument("--groups", type=int, nargs="+", default=[4, 16], help="heads of keys and values")
    attention.add_argument("--width", type=int, default=64, help="of a head")
    attention.add_argument("--seconds", type=float, default=2, help="of measuring each shape")
    counts = parts.add_parser("instructions", help="1 where a product takes over 8 %% more than was written down")
    counts.add_argument("--write", action="store_true", help=f"write the counts into {HISTORY.name}")
    emulated = parts.add_parser(
        "emulated", help="instructions of products on ARM, which qemu runs, and their least cycles"
    )
    emulated.add_argument("--write", action="store_true", help=f"write the counts into {HISTORY.name}")
    args = parser.parse_args()
    try:
        if args.part == "roofline":
            measured = measure_roofline(compiled(), args.path, args.seconds)
            print(as_json(measured) if args.json else table(measured))
            return 0
        if args.part == "attention":
            return _attention(args)
        if args.part == "emulated":
            return _emulated(write=args.write)
        return _compared(compiler(), count_instructions(compiled()), write=args.write)
    except PerfError as error:
        print(f"perf: {error}", file=sys.stderr)
        return 2


def _attention(args: argparse.Namespace) -> int:
    program = compiled("attention_times")
    shapes = [
        Shape(context, window, args.heads, groups, args.width)
        for groups in args.groups for context in args.context for window in args.window
    ]  # fmt: skip
    measured = {shape: measure_attention(program, args.path, shape, args.seconds) for shape in shapes}
    print(f"{processor()['name']}, {args.path} path, one thread")
    print(attention_table(measured))
    return 0


def _emulated(*, write: bool) -> int:
    found = count_emulated(compiled(cross=True))
    print(emulated_table(found))
    return _compared(compiler(CROSS), {each.key: each.count for each in found}, write=write)


def _compared(name: str, now: dict[Key, Count], *, write: bool) -> int:
    if write:
        write_history(name, now)
        return 0
    found = grown(read_history(name), now)
    for each in found:
        print(each)
    print(f"{len(now)} products counted, {len(found)} of them above {name}'s counts in {HISTORY.name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
