"""The command that polygraphy's `debug reduce` runs for each graph:
`python -m speccompile.compiler.diagnose.reduction_attempt JOB ONNX`.

JOB is a JSON file: {"settings", "limits", "failure"}. Exit code 1: the graph fails in that way; 0: it does not.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from speccompile.compiler.diagnose.failure import Failure
from speccompile.compiler.engines import Limits, Settings


def write_job(path: Path, settings: Settings, limits: Limits, failure: Failure) -> None:
    """Write the JSON file of the command."""
    expected = asdict(failure) | {"reasons": sorted(failure.reasons)}
    data = {"settings": settings.to_json(), "limits": asdict(limits), "failure": expected}
    path.write_text(json.dumps(data))


def main() -> int:
    """Try the graph of the command line."""
    job, graph = map(Path, sys.argv[1:])
    data = json.loads(job.read_bytes())
    expected = Failure(**(data["failure"] | {"reasons": frozenset(data["failure"]["reasons"])}))
    return int(expected.happens(graph, Settings.from_json(data["settings"]), Limits(**data["limits"])))


if __name__ == "__main__":
    sys.exit(main())
