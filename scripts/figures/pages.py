"""Figures in README and pages: the text between the marks `<!-- figure: NAME -->` and `<!-- /figure -->`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.figures.measure import FOLDER, MEASUREMENTS, ROOT, inputs, said_commands
from scripts.figures.plots import PLOTS
from scripts.figures.tables import TABLES, Measurement, render

PEERS = ("peers", "long")
"""Files of docs/figures that programs of scripts/peers write. They take other runtimes, so nobody asks if they are
stale."""
BLOCK = re.compile(r"(<!-- figure: (\S+) -->\n).*?(<!-- /figure -->)", re.DOTALL)


def read_measurements(folder: Path = FOLDER) -> dict[str, Measurement]:
    """Return the files of docs/figures by name."""
    names = (*MEASUREMENTS, *PEERS)
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def pages(root: Path = ROOT) -> list[Path]:
    """Return README and all pages."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def filled(text: str, measurements: dict[str, Measurement]) -> str:
    """Return a page with its figures as the measurements have them. Raise KeyError for a figure that is not known."""
    return BLOCK.sub(lambda block: f"{block[1]}{render(block[2], measurements)}\n{block[3]}", text)


def write(root: Path = ROOT) -> None:
    """Write the figures of all pages, and the plots."""
    measurements = read_measurements(root / "docs" / "figures")
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        if (new := filled(text, measurements)) != text:
            page.write_text(new, encoding="utf-8")
    for name, (source, draw) in PLOTS.items():
        (root / "docs" / "figures" / name).write_text(draw(measurements[source]), encoding="utf-8")


def stale(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for every figure that is not what its measurement says, and for every measurement that was made of
    other commands or files than there are now."""
    measurements = read_measurements(root / "docs" / "figures")
    for name in MEASUREMENTS:
        data = measurements[name]
        again = f"hint: python -m scripts.figures {name}"
        if data["commands"] != said_commands(name):
            yield f"docs/figures/{name}.json: measured by other commands than scripts/figures/measure.py has ({again})"
        changed = {file for file, _ in data["inputs"].items() ^ inputs(name).items()}
        if changed:
            yield f"docs/figures/{name}.json: {', '.join(sorted(changed))} changed since it was measured ({again})"
    for page in pages(root):
        yield from _stale_of_page(page.relative_to(root).as_posix(), page.read_text(encoding="utf-8"), measurements)
    for name, (source, draw) in PLOTS.items():
        if (root / "docs" / "figures" / name).read_text(encoding="utf-8") != draw(measurements[source]):
            yield f"docs/figures/{name}: differs from {source}.json (hint: python -m scripts.figures)"


def _stale_of_page(name: str, text: str, measurements: dict[str, Measurement]) -> Iterator[str]:
    opened = re.findall(r"^<!-- figure: (\S+) -->$", text, re.MULTILINE)
    whole = [block[2] for block in BLOCK.finditer(text)]
    if opened != whole:
        yield f"{name}: received the figures {opened}, of which only {whole} end with <!-- /figure -->"
    elif unknown := sorted({*whole} - TABLES.keys()):
        yield f"{name}: received the figure {', '.join(unknown)}, expected one of {', '.join(TABLES)}"
    elif filled(text, measurements) != text:
        yield f"{name}: its figures differ from docs/figures (hint: python -m scripts.figures)"
