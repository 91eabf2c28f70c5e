"""What Triton's Python backend gives a model (`triton_python_backend_utils`), as far as speccompile's model uses it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
OUTPUTS = ("text_output", "output_ids", "finish_reason", "num_input_tokens", "num_output_tokens", "generation")
DTYPES = {"text_input": object, "stop_words": object, "input_ids": np.int64, "max_tokens": np.int32, "top_k": np.int32,
          "seed": np.uint64} | dict.fromkeys(("stream", "chat", "logprobs", "autoregressive"), bool)  # fmt: skip


class TritonModelException(Exception):
    pass


class TritonError:
    INTERNAL, INVALID_ARG, CANCELLED = 1, 3, 7

    def __init__(self, message: str, code: int) -> None:
        self.message, self.code = message, code


class Tensor:
    broken = False
    """As a server that does not know this numpy."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self._array = name, array

    def as_numpy(self) -> Any:
        return self._array

    def to_dlpack(self) -> Any:
        return self._array

    @classmethod
    def from_dlpack(cls, name: str, array: Any) -> "Tensor":
        return cls(name, np.full_like(array, array[0]) if cls.broken else array)


class InferenceResponse:
    def __init__(self, output_tensors: Iterable[Tensor] = (), error: TritonError | None = None) -> None:
        self.outputs = {each.name: each.as_numpy() for each in output_tensors}
        self.error = error


class Logger:
    lines: list[str] = []  # noqa: RUF012

    log_info = log_warn = log_error = lines.append


class Sender:
    def __init__(self) -> None:
        self.sent: list[tuple[InferenceResponse, int]] = []

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        self.sent.append((response, flags))


class Request:
    """cancelled_after: responses, after which nobody wants more. outputs: those that are wanted."""

    def __init__(self, cancelled_after: int | None = None, outputs: Iterable[str] = OUTPUTS, **inputs: Any) -> None:
        self.sender, self._asked, self._cancelled_after, self._outputs = Sender(), 0, cancelled_after, list(outputs)
        self.inputs = {name: _array(name, value) for name, value in inputs.items()}

    def get_response_sender(self) -> Sender:
        return self.sender

    def requested_output_names(self) -> list[str]:
        return self._outputs

    def is_cancelled(self) -> bool:
        self._asked += 1
        return self._cancelled_after is not None and self._asked > self._cancelled_after

    @property
    def error(self) -> TritonError:
        """Return the only response, which must be an error."""
        ((response, flags),) = self.sender.sent
        assert response.error is not None
        assert flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        return response.error

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Return the responses; only the last one may be marked as such."""
        assert [flags for _, flags in self.sender.sent] == [0] * (len(self.sender.sent) - 1) + [1]
        assert all(response.error is None for response, _ in self.sender.sent)
        return [{name: value.reshape(-1).tolist() for name, value in each.outputs.items()} for each, _ in
                self.sender.sent]  # fmt: skip


def _array(name: str, value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    encoded = [each.encode() if isinstance(each, str) else each for each in values]
    return np.array([encoded], DTYPES.get(name, np.float32))


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return Tensor(name, request.inputs[name]) if name in request.inputs else None
