"""Printing of a measurement: its table, or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from speccompile.progress import LOGGER


def print_table(table: str, data: Mapping[str, Any] | None) -> None:
    """Print the table on stdout, or `data` as JSON if it is given: then the table is logged, as progress is."""
    if data is None:
        click.echo(table)
        return
    LOGGER.info("%s", table)
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines whose columns are aligned."""
    count = max((len(row) for row in rows), default=0)
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(count)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
