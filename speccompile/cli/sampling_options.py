"""Command-line options of sampling, shared by all commands that generate."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from speccompile.cli.options import Option

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "-t", "--temperature", metavar="T", type=float, cls=Option, default=0.0, show_default=True,
        help="0 is greedy decoding, 1 draws from the target's own probabilities.",
    ),
    click.option("--top-k", metavar="N", type=int, help="Draw from the N most probable tokens; 0 is all."),
    click.option("--top-p", metavar="P", type=float, help="Draw from the fewest tokens that add up to P."),
    click.option("--min-p", metavar="P", type=float, help="Draw from tokens at least P times as probable as the best."),
    click.option(
        "--repetition-penalty", metavar="R", type=float,
        help="Above 1, makes tokens less likely that were there before; 1 is the default.",
    ),
    click.option("--seed", metavar="N", type=int, help="Equal seeds give equal tokens; by default a new one is drawn."),
)  # fmt: skip


NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
"""Python names of the options, in order."""


def sampling_options(command: F) -> F:
    """Add the options to a command, by their names in `Bundle.generate_batch`. Greedy bundles refuse them."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
