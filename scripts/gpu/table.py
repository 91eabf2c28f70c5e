"""Print pytest's results on a GPU as a table: python scripts/gpu/table.py RESULTS.xml

RESULTS.xml is pytest's JUnit file; figures that tests recorded are its properties.
"""

import importlib.metadata
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from speccompile.runtime.devices.cuda import open_device

PACKAGES = (
    "onnxruntime-gpu",
    "onnxruntime-ep-nv-tensorrt-rtx",
    "tensorrt-rtx-cu13",
    "tensorrt",
    "cuda-bindings",
    "torch",
    "speccompile",
)


def describe_machine() -> list[str]:
    """Return the GPU and its driver, and the versions of what runs on it."""
    device = open_device()
    lines = [f"{device.name}, compute capability {device.compute_capability}"]
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=driver_version,memory.total", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
        lines += [f"driver and memory: {line}" for line in found[:1]]
    return [*lines, ", ".join(f"{name} {version(name)}" for name in PACKAGES)]


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def read_rows(results: str) -> list[tuple[str, str, str]]:
    """Return (test, result, figures or reason) for every test of a JUnit file."""
    return [_row(case) for case in ElementTree.fromstring(results).iter("testcase")]


def _row(case: ElementTree.Element) -> tuple[str, str, str]:
    figures = ", ".join(f"{each.get('name')} {each.get('value')}" for each in case.iter("property"))
    for tag, word in (("failure", "FAILED"), ("error", "FAILED"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            reason = (found.get("message") or "").partition("\n")[0]
            return case.get("name") or "", word, "; ".join(filter(None, (reason, figures)))
    return case.get("name") or "", "passed", figures


def render(rows: list[tuple[str, str, str]]) -> str:
    """Return a line for each test, in columns, and a last line with counts."""
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = [f"{name:<{width}}  {result:<7}  {figures}".rstrip() for name, result, figures in rows]
    counts = [f"{sum(result == word for _, result, _ in rows)} {word}" for word in ("passed", "FAILED", "skipped")]
    return "\n".join([*lines, ", ".join(counts)])


def main(file: str) -> int:
    """Print the table. Return 1 if no test passed, 0 otherwise."""
    rows = read_rows(Path(file).read_text(encoding="utf-8"))
    print(*describe_machine(), "", render(rows), sep="\n")
    return 0 if any(result == "passed" for _, result, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
