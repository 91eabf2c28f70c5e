"""Writes marks into test files: how many graphs they trace."""

import ast
import re
from pathlib import Path

_MARK = re.compile(r"pytest\.mark\.builds\(\d+\)")


def write_marks(path: Path, count: int) -> str:
    """Make a module declare `count` builds. Returns what was done, or left to people."""
    text = path.read_text(encoding="utf-8")
    new = _changed(text, f"pytest.mark.builds({count})")
    if new is None:
        return f"{path.name}: has marks of its tests: raise those by hand, {count} builds were counted"
    path.write_text(new, encoding="utf-8")
    return f"{path.name}: declares {count} builds"


def _changed(text: str, mark: str) -> str | None:
    lines, body = text.splitlines(keepends=True), ast.parse(text).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            assert node.end_lineno is not None
            before = "".join(lines[node.lineno - 1 : node.end_lineno])
            value = before.partition("=")[2].strip()
            if _MARK.search(before):
                after = _MARK.sub(mark, before)
            elif isinstance(node.value, ast.List):
                after = f"pytestmark = [{mark}, {value[1:]}\n"
            else:
                after = f"pytestmark = [{value}, {mark}]\n"
            return "".join([*lines[: node.lineno - 1], after, *lines[node.end_lineno :]])
    if _MARK.search(text):
        return None
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    after_line = max((node.end_lineno or 0 for node in imports), default=1)
    added = ["\n", f"pytestmark = {mark}\n"]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    head = lines[:after_line] if "pytest" in names else _with_pytest(lines[:after_line], imports)
    return "".join([*head, *added, *lines[after_line:]])


def _with_pytest(lines: list[str], imports: list[ast.Import | ast.ImportFrom]) -> list[str]:
    """Import pytest; ruff sorts the line in."""
    first = imports[0].lineno - 1 if imports else len(lines)
    return [*lines[:first], "import pytest\n", *lines[first:]]
