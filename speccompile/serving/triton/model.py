"""Model for Triton's Python backend: it opens the bundle next to this file, and answers with speccompile's runtime.

The server's Python must have speccompile's runtime: `pip install speccompile`, in the environment that the parameter
EXECUTION_ENV_PATH of config.pbtxt names, or else in the one on the server's PATH.
"""

import json
import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

from speccompile.errors import SpeccompileError, UsageError
from speccompile.machine.system import available_cores
from speccompile.progress import LOGGER
from speccompile.runtime import Bundle
from speccompile.serving.triton.serving import CancelledError, answer
from speccompile.serving.triton.tensors import OUTPUTS

DTYPES: dict[str, type] = {"STRING": object, "INT64": np.int64, "UINT32": np.uint32}


class TritonPythonModel:
    """One instance: a process with the bundle open."""

    def initialize(self, args: dict[str, str]) -> None:
        LOGGER.addHandler(_ServerLog())
        LOGGER.setLevel(logging.INFO)
        _check_numpy()
        config = json.loads(args["model_config"])
        options = {key: value["string_value"] for key, value in config["parameters"].items()}
        # Instances share the cores of this machine.
        share = max(1, available_cores() // sum(group["count"] for group in config["instance_group"]))
        folder = Path(args["model_repository"]) / args["model_version"] / "bundle"
        try:
            threads = int(options["threads"]) if "threads" in options else share
            self._bundle = Bundle.open(folder, engine=options.get("engine"), threads=threads)
        except SpeccompileError as error:
            raise pb_utils.TritonModelException(_words(error)) from None

    def execute(self, requests: Sequence[Any]) -> None:
        answer(self._bundle, [_Client(request) for request in requests])


class _Client:
    """`speccompile.serving.triton.requests.Client` over a request of the server's."""

    def __init__(self, request: Any) -> None:
        self._request, self._sender = request, request.get_response_sender()

    def tensor(self, name: str) -> Any:
        found = pb_utils.get_input_tensor_by_name(self._request, name)
        return None if found is None else found.as_numpy()

    def cancelled(self) -> bool:
        return bool(self._request.is_cancelled())

    def send(self, outputs: dict[str, Sequence[Any]], *, final: bool) -> None:
        wanted = self._request.requested_output_names()
        tensors = [_tensor(each.name, each.type, outputs[each.name]) for each in OUTPUTS
                   if each.name in outputs and each.name in wanted]  # fmt: skip
        self._respond(pb_utils.InferenceResponse(tensors), final=final)

    def fail(self, error: Exception) -> None:
        match error:
            case CancelledError():
                code = pb_utils.TritonError.CANCELLED
            case UsageError():
                code = pb_utils.TritonError.INVALID_ARG
            case _:
                code = pb_utils.TritonError.INTERNAL
        if not isinstance(error, SpeccompileError):
            LOGGER.error("%s", "".join(traceback.format_exception(error)).rstrip())
        response = pb_utils.InferenceResponse(error=pb_utils.TritonError(_words(error), code))
        self._respond(response, final=True)

    def _respond(self, response: Any, *, final: bool) -> None:
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0)


class _ServerLog(logging.Handler):
    """Handler that writes speccompile's log to the server's log."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = pb_utils.Logger
        log = {logging.INFO: logger.log_info, logging.WARNING: logger.log_warn}.get(record.levelno, logger.log_error)
        log(record.getMessage())


def _words(error: Exception) -> str:
    if not isinstance(error, SpeccompileError):
        return f"a defect of speccompile, the server's log has more: {type(error).__name__}: {error}"
    return f"{error} (hint: {error.hint})" if error.hint else str(error)


def _tensor(name: str, kind: str, values: Sequence[Any]) -> Any:
    """Return an output with the batch axis in front."""
    encoded = [value.encode() for value in values] if kind == "STRING" else values
    return pb_utils.Tensor(name, np.array([encoded], DTYPES[kind]))


def _check_numpy() -> None:
    """Raise if the server misreads arrays of numpy 2. Older servers do so silently, which would change numbers."""
    sent = np.array([1, 2, 3], np.int64)
    returned = pb_utils.Tensor.from_dlpack("check", pb_utils.Tensor("check", sent).to_dlpack()).as_numpy()
    if not np.array_equal(sent, returned):
        raise pb_utils.TritonModelException(
            f"this server's Python backend does not read arrays of numpy {np.__version__} as they are: it was sent "
            f"{sent.tolist()} and returned {returned.tolist()} (hint: pip install 'numpy<2' in the model's "
            "environment, or use a server that knows numpy 2)"
        )
