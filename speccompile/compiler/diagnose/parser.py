"""Run TensorRT's parser on a graph in its own process: `python -m speccompile.compiler.diagnose.parser BACKEND ONNX`.

stdout gets one JSON object: {"findings": [{"op", "name", "reason"}], "not_checked"}. All else goes to stderr.
"""

import json
import os
import sys
from typing import Any

from speccompile.compiler.engines.flavour import check_buildable
from speccompile.errors import EngineError


def main() -> None:
    """Check the graph of the command line."""
    backend, onnx = sys.argv[1:]
    answer = os.dup(1)
    os.dup2(2, 1)  # polygraphy and TensorRT talk on stdout
    result = json.dumps(_result(backend, onnx)).encode()
    os.write(answer, result)


def _result(backend: str, onnx: str) -> dict[str, Any]:
    try:
        check_buildable(backend)
        from polygraphy.tools.inspect.subtool import capability
    except (EngineError, ImportError) as error:
        return {"findings": [], "not_checked": str(error)}
    supported, parser = capability.parse(onnx)
    findings = [_finding(parser.get_error(index)) for index in range(parser.num_errors)]
    if not supported and not findings:
        findings = [{"op": "", "name": "", "reason": "no reason given"}]
    return {"findings": [] if supported else findings, "not_checked": ""}


def _finding(error: Any) -> dict[str, str]:
    at_node = error.node() >= 0
    return {
        "op": error.node_operator() if at_node else "",
        "name": error.node_name() if at_node else "",
        "reason": f"{error.code().name} in {error.func()}: {error.desc().strip()}",
    }


if __name__ == "__main__":
    main()
