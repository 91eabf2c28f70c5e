"""The rows on disk, and what the README makes of them."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from scripts.architectures.row import STATUSES, Row

FILE = Path(__file__).with_name("table.json")
README = Path(__file__).resolve().parents[2] / "README.md"
_SECTION = re.compile(r"(<!-- architectures[^>]*-->\n).*?(<!-- /architectures -->)", re.DOTALL)


def read_rows(file: Path = FILE) -> dict[str, Row]:
    """Rows by type; none where there is no table yet."""
    if not file.exists():
        return {}
    return {row["model_type"]: Row.from_json(row) for row in json.loads(file.read_text())["rows"]}


def tried_with(file: Path = FILE) -> str:
    """The version of transformers whose classes are in the table."""
    return str(json.loads(file.read_text())["transformers"])


def write_rows(rows: dict[str, Row], transformers: str, file: Path = FILE) -> None:
    """In the order of the alphabet, a line each."""
    lines = ",\n".join(json.dumps(rows[name].to_json()) for name in sorted(rows))
    file.write_text(f'{{"transformers": "{transformers}", "rows": [\n{lines}\n]}}\n')


def write_readme(rows: Iterable[Row], readme: Path = README) -> None:
    """Put the table where it belongs."""
    table = markdown(rows)
    text = _SECTION.sub(lambda found: f"{found[1]}{table}\n{found[2]}", readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")


def summary(rows: Iterable[Row]) -> str:
    """How many there are of each status."""
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def markdown(rows: Iterable[Row]) -> str:
    """The README's table: types of a status, and of a reason, together."""
    types: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: (list(STATUSES).index(row.status), row.model_type)):
        types.setdefault((row.status, row.why), []).append(f"`{row.model_type}`")
    lines = [f"| {status} | {why} | {len(names)} | {', '.join(names)} |" for (status, why), names in types.items()]
    return "\n".join(["| | why | | `model_type` |", "|---|---|---|---|", *lines])
