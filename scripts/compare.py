#!/usr/bin/env python3
"""Print a speculative generation beside the autoregressive one of the same prompt; exit code 1 when tokens differ.

scripts/compare.py SPECULATIVE.json AUTOREGRESSIVE.json      # both from `speccompile generate --json`
"""

import json
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROWS = (("rounds", "rounds", "d"), ("mean accepted", "mean_accepted", ".2f"), ("tokens/s", "tokens_per_second", ".1f"))


def first_difference(speculative: list[int], autoregressive: list[int]) -> str | None:
    """Where two token lists part and what stands there; None when they are equal."""
    for position, (left, right) in enumerate(zip_longest(speculative, autoregressive)):
        if left != right:
            return f"new token {position} is {left} speculatively and {right} autoregressively"
    return None


def render(speculative: dict[str, Any], autoregressive: dict[str, Any], difference: str | None) -> str:
    """The text that was generated, then the comparison, one quantity a line."""
    lines = [speculative["text"], "", f"{'':<16}{'speculative':>14}{'autoregressive':>16}"]
    for title, key, form in ROWS:
        left, right = ("-" if way[key] is None else format(way[key], form) for way in (speculative, autoregressive))
        lines.append(f"{title:<16}{left:>14}{right:>16}")
    count = len(speculative["token_ids"])
    return "\n".join([*lines, f"same tokens     {f'yes, all {count}' if difference is None else f'no: {difference}'}"])


def main() -> int:
    speculative, autoregressive = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:])
    difference = first_difference(speculative["token_ids"], autoregressive["token_ids"])
    print(render(speculative, autoregressive, difference))
    return 0 if difference is None else 1


if __name__ == "__main__":
    sys.exit(main())
