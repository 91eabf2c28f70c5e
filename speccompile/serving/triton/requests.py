"""Request of Triton: its tensors, parsed and checked, as the options of `Bundle.generate_batch`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from speccompile.bundle.sampling import SAMPLING_OPTIONS
from speccompile.errors import PromptError, UsageError
from speccompile.runtime import Bundle, GenerationOptions
from speccompile.runtime.batch import Batch
from speccompile.runtime.generation_options import DEFAULTS
from speccompile.runtime.text.prompts import Prompt

Tensor = np.ndarray[Any, np.dtype[Any]]


class Client(Protocol):
    """Client of a request."""

    def tensor(self, name: str) -> Tensor | None:
        """Return an input, or None if it was not sent."""

    def cancelled(self) -> bool:
        """Return whether the client has cancelled the request."""

    def send(self, outputs: dict[str, Sequence[Any]], *, final: bool) -> None:
        """Send a response with these tensors; the last one is `final`."""

    def fail(self, error: Exception) -> None:
        """Send an error as the last response."""


@dataclass(frozen=True)
class ParsedRequest:
    """Parsed request. Requests with the same `shared` options may run in one batch."""

    client: Client
    token_ids: list[int]
    stream: bool
    shared: dict[str, Any]
    sampling: dict[str, Any]


def read(client: Client, bundle: Bundle) -> ParsedRequest:
    """Parse a request. Raise PromptError or UsageError for what this bundle cannot take."""
    _refuse(client)
    prompt, chat = _prompt(client), _value(client, "chat", bool, False)
    shared = {
        "chat": chat,
        "max_new_tokens": _value(client, "max_tokens", int, DEFAULTS.max_new_tokens),
        "stop": _texts(client, "stop_words"),
        "logprobs": _value(client, "logprobs", bool, False),
        "autoregressive": _value(client, "autoregressive", bool, False),
    }
    sampling = {name: _sampling(client, name, option.neutral) for name, option in SAMPLING_OPTIONS.items()}
    asked = ParsedRequest(
        client, bundle.token_ids(prompt, chat=chat), _value(client, "stream", bool, False), shared, sampling
    )
    start(bundle, [asked])  # runs nothing, but refuses an invalid request before it joins a batch
    return asked


def start(bundle: Bundle, group: Sequence[ParsedRequest]) -> Batch:
    """Return one batch for requests with the same `shared` options, at most as many as the bundle's batch size."""
    each = {name: [asked.sampling[name] for asked in group] for name in SAMPLING_OPTIONS}
    own = {name: values if len(group) > 1 else values[0] for name, values in each.items()}
    options: dict[str, Any] = group[0].shared | own
    return Batch(bundle, [asked.token_ids for asked in group], GenerationOptions(**options))


def _refuse(client: Client) -> None:
    """Raise UsageError for options that no bundle supports."""
    if not _value(client, "exclude_input_in_output", bool, True):
        raise UsageError(
            "exclude_input_in_output: received false, expected true: an answer has the new text alone",
            hint="leave it out, and put the prompt before the answer yourself",
        )


def _prompt(client: Client) -> Prompt:
    text, ids = client.tensor("text_input"), client.tensor("input_ids")
    if (text is None) == (ids is None):
        received = "no prompt" if text is None else "text_input and input_ids"
        raise UsageError(f"received {received}, expected text_input or input_ids", hint="send exactly one of them")
    return _texts(client, "text_input")[0] if ids is None else _row("input_ids", ids).tolist()


def _sampling(client: Client, name: str, neutral: float | None) -> Any:
    """Return a value, or None for the neutral one, which clients may send to a bundle that does not sample as well."""
    value = _value(client, name, _shortest, None)
    return None if value == neutral else value


def _value(client: Client, name: str, kind: Callable[[Any], Any], default: Any) -> Any:
    """Return the single value of an input."""
    tensor = client.tensor(name)
    return default if tensor is None else kind(_row(name, tensor)[0])


def _texts(client: Client, name: str) -> list[str]:
    tensor = client.tensor(name)
    if tensor is None:
        return []
    try:
        return [value.decode() for value in _row(name, tensor)]
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{name}: byte {error.start} is 0x{error.object[error.start]:02x}, expected UTF-8 text",
            hint="send it as UTF-8",
        ) from error


def _row(name: str, tensor: Tensor) -> Tensor:
    """Return the values of a request's single prompt."""
    if len(tensor) != 1 or tensor.size == 0:
        raise UsageError(
            f"{name}: received shape {list(tensor.shape)}, expected one row with at least one value",
            hint="send a request for each prompt: those that arrive together run side by side",
        )
    return tensor.reshape(-1)


def _shortest(value: Any) -> int | float:
    """Return a float32 as the shortest number that parses to it: 0.8, not 0.800000011920929."""
    return float(str(value)) if isinstance(value, np.floating) else int(value)
