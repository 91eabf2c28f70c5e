"""Render docs/reference/environment.md from a table. Its names must be those of the code."""

import re
import tomllib
from pathlib import Path

TABLE = Path(__file__).with_name("environment.toml")
PACKAGE = Path(__file__).resolve().parents[2] / "speccompile"
NAME = re.compile(r'"(SPECCOMPILE_[A-Z_]*[A-Z])"')
NO_VARIABLE = {"SPECCOMPILE_H"}
"""Strings of this form that are not environment variables."""

HEAD = """# Environment variables

Settings that come from the environment. Options of the command line, where there are such, override them. This page is
made from the code by `scripts/docs --write`.

| variable | meaning | default |
|---|---|---|
"""
OTHERS = """
Libraries that speccompile uses read their own: `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` (Hugging Face Hub),
`XDG_CACHE_HOME`, `TMPDIR`, `NO_COLOR` (progress bars). ONNX Runtime's telemetry, which writes an identifier of the
machine into the user's cache folder, is off: `ORT_DISABLE_TELEMETRY` is set to 1 where it is not set.
"""


def page() -> str:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    if wrong := {*table} ^ named():
        raise ValueError(f"{TABLE}: received other variables than those of the code: {', '.join(sorted(wrong))}")
    return (
        HEAD + "".join(f"| `{name}` | {meaning} | {default} |\n" for name, (meaning, default) in table.items()) + OTHERS
    )


def named() -> set[str]:
    """Return the names of variables in the sources, Python and C++."""
    sources = [path for kind in ("*.py", "*.cpp", "*.h") for path in PACKAGE.rglob(kind)]
    texts = (path.read_text(encoding="utf-8") for path in sources if "installed" not in path.parts)
    return {name for text in texts for name in NAME.findall(text)} - NO_VARIABLE
