"""HTML pages with tables and inline plots. A page loads nothing and runs no script."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from speccompile.bundle.folders import write_atomically
from speccompile.errors import EngineError, SpeccompileError, UsageError
from speccompile.measure.bench.plots import COLOURS

Table = Sequence[Sequence[str]]
"""Rows of cell texts; the first row is the header."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }}</title>
<style>
:root { --text: #1c2733; --quiet: #5d6b7d; --back: #fff; --line: #dfe3e8
{%- for light, dark in colours %}; --c{{ loop.index0 }}: {{ light }}{% endfor %} }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ef; --quiet: #9aa7b6; --back: #14191f; --line: #313a45
{%- for light, dark in colours %}; --c{{ loop.index0 }}: {{ dark }}{% endfor %} } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 84em;
  margin: 2em auto; padding: 0 1em }
h1, h2 { font-weight: 600; overflow-wrap: anywhere }
h1 { margin-bottom: 0.2em }
h2 { font-size: 1.1em; margin: 1.4em 0 0.4em }
.lead { font-size: 1.25em; margin: 0.2em 0 0.6em }
.head, .after { color: var(--quiet); overflow-wrap: anywhere }
.wide { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: 0.15em 0.9em; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap }
td.long { white-space: normal; min-width: 16em; overflow-wrap: anywhere }
th:first-child, td:first-child { padding-left: 0 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26em, 100%), 1fr)); gap: 0.6em 2em }
svg { width: 100%; font-family: inherit; fill: var(--text) }
.line { fill: none }
.over { paint-order: stroke; stroke: var(--back); stroke-width: 3 }
.grid { stroke: var(--line) }
.best { stroke: var(--c1); stroke-width: 2 }
{% for _ in colours %}.f{{ loop.index0 }} { fill: var(--c{{ loop.index0 }}) } .s{{ loop.index0 }} { stroke: var(--c
{{- loop.index0 }}) }
{% endfor %}</style>
</head>
<body>
<h1>{{ name }}</h1>
{% if lead %}<p class="lead">{% for line in lead %}{{ line }}<br>
{% endfor %}</p>
{% endif %}<p class="head">{% for line in head %}{{ line }}<br>
{% endfor %}</p>
<p>{% for line in notes %}{{ line }}<br>
{% endfor %}</p>
<div class="plots">
{% for title, plot in plots.items() %}<section>
<h2>{{ title }}</h2>
{{ plot | safe }}
</section>
{% endfor %}</div>
{% for title, rows in tables.items() %}<h2>{{ title }}</h2>
<div class="wide"><table>
<tr>{% for text in rows[0] %}<th class="{{ rows | kind(loop.index0) }}">{{ text }}</th>{% endfor %}</tr>
{% for row in rows[1:] %}<tr>
{%- for text in row %}<td class="{{ rows | kind(loop.index0) }}">{{ text }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
{% endfor %}<p class="after">{% for line in after %}{{ line }}<br>
{% endfor %}</p>
</body>
</html>
"""

_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?%?( \([0-9.-]+\)[ *])?")
"""Number, also a percentage or one with another number behind it."""
_EMPTY = ("", "-", "all")
"""Texts that stand for a number."""

_LONG = 40
"""Length of a text from which its column may wrap, in characters."""


def check_page(path: Path) -> None:
    """Raise UsageError if the page cannot be written there, and EngineError without the jinja2 package.

    Callers check before the measurements that the page shows."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder '{folder}'"
        raise UsageError(
            f"--html: received '{path}', expected a file in a folder that exists: {reason}",
            hint="make the folder, or give another file",
        )
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"--html: received '{path}', expected a file in a folder that can be written: {error.strerror}",
            hint="give another file",
        ) from None
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise EngineError(
            "--html needs the Python package jinja2, which is not installed", hint="pip install jinja2, or leave it out"
        ) from None


def write_html(page: str, path: Path) -> None:
    """Write the page atomically. Raise SpeccompileError if that fails."""
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise SpeccompileError(
            f"{path}: the page could not be written: {error.strerror}", hint="give another file with --html"
        ) from error


def make_html(
    name: str, title: str, *, head: Sequence[str], notes: Sequence[str], plots: Mapping[str, str],
    tables: Mapping[str, Table], lead: Sequence[str] = (), after: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the page's HTML. lead: lines that answer the page's question; head, notes, after: other lines of text,
    before the plots and at the end; plots: title -> SVG; tables: by title, empty ones omitted."""
    from jinja2 import Environment

    filled = {each: table for each, table in tables.items() if len(table) > 1}
    environment = Environment(autoescape=True)
    environment.filters["kind"] = _kind
    return environment.from_string(_PAGE).render(
        name=name, title=title, lead=lead, head=head, notes=notes, plots=plots, tables=filled, after=after,
        colours=COLOURS,
    )  # fmt: skip


def _kind(rows: Table, column: int) -> str:
    """Return the class of a column: numbers stand to the right, long texts wrap."""
    cells = [row[column] for row in rows[1:] if column < len(row)]
    if column and all(_NUMBER.fullmatch(text) or text in _EMPTY for text in cells):
        return "number"
    return "long" if any(len(text) > _LONG for text in cells) else "short"
