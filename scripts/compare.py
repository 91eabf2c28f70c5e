#!/usr/bin/env python3
"""Continue a prompt speculatively, with drafts in every round, and autoregressively, in turn, and compare the two.

scripts/compare.py BUNDLE PROMPT      # exit code 1 when the tokens differ
"""

import sys
from statistics import median

from speccompile.runtime import Bundle, Generation, first_difference

NEW_TOKENS, REPEATS = 128, 7


def describe_difference(speculative: list[int], autoregressive: list[int]) -> str | None:
    """Return the first index at which two token lists differ, with both tokens; None if they are equal."""
    index = first_difference(speculative, autoregressive)
    if index is None:
        return None
    left, right = ((*mode[index : index + 1], None)[0] for mode in (speculative, autoregressive))
    return f"new token {index} is {left} speculatively and {right} autoregressively"


def render(speculative: list[Generation], autoregressive: list[Generation], difference: str | None) -> str:
    """Return the comparison, one quantity a line. Speeds are medians over repeats in which both modes took turns."""

    def row(title: str, form: str, values: tuple[float | None, float | None]) -> str:
        left, right = ("-" if value is None else format(value, form) for value in values)
        return f"{title:<16}{left:>14}{right:>16}"

    modes, one = (speculative, autoregressive), (speculative[0], autoregressive[0])
    speeds = [median(g.tokens_per_second for g in mode) for mode in modes]
    same = f"yes, all {len(one[0].token_ids)}" if difference is None else f"no: {difference}"
    return "\n".join(
        [
            f"{'':<16}{'speculative':>14}{'autoregressive':>16}",
            row("rounds", "d", (one[0].rounds, one[1].rounds)),
            row("mean accepted", ".2f", (one[0].acceptance_length, one[1].acceptance_length)),
            row("tokens/s", ".0f", (speeds[0], speeds[1])),
            f"same tokens     {same}",
        ]
    )


def main() -> int:
    folder, prompt = sys.argv[1:]
    bundle = Bundle.open(folder)
    runs: tuple[list[Generation], list[Generation]] = ([], [])
    for _ in range(REPEATS):
        for autoregressive in (False, True):
            generation = bundle.generate(
                prompt, max_new_tokens=NEW_TOKENS, autoregressive=autoregressive, adaptive=False
            )
            runs[autoregressive].append(generation)
    difference = describe_difference(runs[0][0].token_ids, runs[1][0].token_ids)
    print(render(*runs, difference))
    return 0 if difference is None else 1


if __name__ == "__main__":
    sys.exit(main())
