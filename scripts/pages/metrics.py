"""Table of metrics, for docs/reference/http.md."""

from speccompile.serving.http.metrics import Metrics


def table() -> str:
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    for family in Metrics("model", "engine", 1).families():
        if family.name.startswith("vllm:"):
            lines.append(f"| `{family.name}` | {family.type} | {family.documentation} |")
    return "\n".join(lines)
