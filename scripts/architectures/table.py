"""The rows on disk, and the table that docs/reference/support.md makes of them."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.architectures.row import STATUSES, Row

FILE = Path(__file__).with_name("table.json")


def read_rows(file: Path = FILE) -> dict[str, Row]:
    """Return rows by type; none where there is no table yet."""
    if not file.exists():
        return {}
    usual = {"processors": [looked_on(file)]}
    return {row["model_type"]: Row.from_json(usual | row) for row in json.loads(file.read_text())["rows"]}


def tried_with(file: Path = FILE) -> str:
    """Return the version of transformers whose classes are in the table."""
    return str(json.loads(file.read_text())["transformers"])


def looked_on(file: Path = FILE) -> str:
    """Return the processor on which windows were compared, but for rows that name theirs."""
    return str(json.loads(file.read_text())["processor"])


def write_rows(rows: dict[str, Row], transformers: str, file: Path = FILE) -> None:
    """Write rows in the order of the alphabet, a line each. The processor of most of them is in the head."""
    processor = Counter(name for row in rows.values() for name in row.processors).most_common(1)[0][0]
    head = json.dumps({"transformers": transformers, "processor": processor})[1:-1]
    lines = ",\n".join(json.dumps(_line(rows[name], processor)) for name in sorted(rows))
    file.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n')


def _line(row: Row, usual: str) -> dict[str, Any]:
    return (replace(row, processors=()) if row.processors == (usual,) else row).to_json()


def processors(rows: Iterable[Row], usual: str) -> str:
    """Return where windows were compared, in a sentence of a page."""
    types: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.exact is not None and row.processors != (usual,):
            types.setdefault(row.processors, []).append(f"`{row.model_type}`")
    others = [f"those of {', '.join(names)} on {' and on '.join(where)}" for where, names in sorted(types.items())]
    return "; ".join([f"Windows were compared on {usual}", *others]) + "."


def summary(rows: Iterable[Row]) -> str:
    """Return how many there are of each status."""
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def markdown(rows: Iterable[Row]) -> str:
    """Return the table of a page: types of a status, and of a reason, together."""
    types: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: (list(STATUSES).index(row.status), row.model_type)):
        types.setdefault((row.status, row.why), []).append(f"`{row.model_type}`")
    lines = [f"| {status} | {why} | {len(names)} | {', '.join(names)} |" for (status, why), names in types.items()]
    return "\n".join(["| | why | | `model_type` |", "|---|---|---|---|", *lines])
