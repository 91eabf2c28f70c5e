"""HTML pages with tables and inline plots. A page loads nothing and runs no script."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from speccompile.bundle.folders import write_atomically
from speccompile.errors import EngineError, SpeccompileError, UsageError

Table = Sequence[Sequence[str]]
"""Rows of cell texts; the first row is the header."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 84em; margin: 2em auto;
  padding: 0 1em }
table { border-collapse: collapse }
th, td { padding: 0.15em 0.9em; text-align: right; border-bottom: 1px solid #dfe3e8 }
th:first-child, td:first-child { text-align: left }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26em, 1fr)); gap: 1em 2em }
h1, h2 { font-weight: 600 }
h2 { font-size: 1.1em; margin: 1.4em 0 0.4em }
svg { width: 100%; font-family: inherit; fill: #1c2733 }
</style>
</head>
<body>
<h1>{{ name }}</h1>
<p>{% for line in head %}{{ line }}<br>
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
<table>
<tr>{% for text in rows[0] %}<th>{{ text }}</th>{% endfor %}</tr>
{% for row in rows[1:] %}<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}</body>
</html>
"""


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
    tables: Mapping[str, Table],
) -> str:  # fmt: skip
    """Return the page's HTML. head, notes: lines of text; plots: title -> SVG; tables: by title, empty ones omitted."""
    from jinja2 import Environment

    filled = {each: table for each, table in tables.items() if len(table) > 1}
    return (
        Environment(autoescape=True)
        .from_string(_PAGE)
        .render(name=name, title=title, head=head, notes=notes, plots=plots, tables=filled)
    )
