"""Answer lines by a service, with enough requests at once to keep every batch slot busy."""

import queue
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from speccompile.errors import EngineError, MissingPackageError
from speccompile.runtime import Bundle, Generation
from speccompile.serving.batch.requests import BatchRequest
from speccompile.serving.batch.results import OK, Result
from speccompile.serving.http.errors import RequestError, to_request_error
from speccompile.serving.http.fields import CHAT_URL
from speccompile.serving.http.json_text import parse
from speccompile.serving.http.requests import (
    ParsedRequest,
    read_chat,
    read_completion,
    submit,
    with_adapter,
    with_default_speculative,
    with_model_name,
)
from speccompile.serving.http.response import ResponseBuilder
from speccompile.serving.http.tokens import TokenTexts
from speccompile.serving.scheduler import Limits, Request, Service

_UNLIMITED = 2**62
"""No limit: a worker keeps only two requests per batch slot in flight, and none of them may be refused."""


class BatchWorker:
    """Answers lines by one bundle, which `name` calls. Several threads may call `run` at once."""

    def __init__(self, bundle: Bundle, service: Service, name: str, speculative: bool) -> None:
        self._bundle, self._service, self._name, self._speculative = bundle, service, name, speculative
        self._texts = TokenTexts(bundle.text)

    @classmethod
    @contextmanager
    def open(cls, bundle: Bundle, name: str, *, speculative: bool = True) -> Iterator[Self]:
        """Yield a worker with exclusive use of the bundle. speculative: default of requests that do not set it."""
        with bundle.serve(Limits(requests=_UNLIMITED, tokens=_UNLIMITED)) as service:
            yield cls(bundle, service, name, speculative)

    def run(self, lines: Iterable[BatchRequest]) -> Iterator[Result]:
        """Yield results in completion order. Keep at most two sequences per batch slot in flight and read `lines`
        lazily. Closing the iterator cancels pending requests. Raise EngineError when the engine has failed."""
        woken = queue.SimpleQueue[_Pending]()
        coming, pending = iter(lines), set[_Pending]()
        try:
            while True:
                while self._has_room(pending) and (line := next(coming, None)) is not None:
                    try:
                        pending.add(self._begin(line, woken))
                    except RequestError as refused:
                        yield Result(line, refused.status, refused.to_json())
                if not pending:
                    return
                some = woken.get()
                if some in pending and (result := some.result()) is not None:
                    pending.remove(some)
                    yield result
        finally:
            for each in pending:
                each.cancel()

    def _has_room(self, pending: "Iterable[_Pending]") -> bool:
        return sum(each.asked.choices for each in pending) < 2 * self._bundle.manifest.batch_size

    def _begin(self, line: BatchRequest, woken: "queue.SimpleQueue[_Pending]") -> "_Pending":
        """Submit a line. Raise RequestError for a body that this bundle cannot take."""
        try:
            asked = self._read(line)
            requests = submit(asked, self._service)
        except (EngineError, MissingPackageError):
            raise
        except Exception as error:
            raise to_request_error(error) from error  # whatever it is, the others are answered
        answer = ResponseBuilder(asked, self._name, self._bundle.manifest, self._texts)
        return _Pending(line, asked, answer, requests, woken)

    def _read(self, line: BatchRequest) -> ParsedRequest:
        body = with_default_speculative(with_model_name(parse(line.body), self._name), speculative=self._speculative)
        asked = with_adapter((read_chat if line.url == CHAT_URL else read_completion)(body, self._bundle), self._name)
        if asked.stream:
            raise RequestError("stream: received true, expected false: a file has no streams", param="stream")
        return asked


class _Pending:
    """A line that has been asked."""

    def __init__(
        self,
        line: BatchRequest,
        asked: ParsedRequest,
        answer: ResponseBuilder,
        requests: list[Request],
        woken: "queue.SimpleQueue[_Pending]",
    ) -> None:
        self.line, self.asked, self._answer, self._requests = line, asked, answer, requests
        self._ended: list[dict[int, Generation]] = [{} for _ in requests]
        for request in requests:
            request.on_ready(lambda: woken.put(self))

    def result(self) -> Result | None:
        """Return the answer; None until all of it has come."""
        try:
            come = [_drained(*each) for each in zip(self._requests, self._ended, strict=True)]
            if not all(come):
                return None
            generations = [ended[index] for ended in self._ended for index in sorted(ended)]
            return Result(self.line, OK, self._answer.full(generations))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the others are answered
            self.cancel()
            refused = to_request_error(error)
            return Result(self.line, refused.status, refused.to_json())

    def cancel(self) -> None:
        for request in self._requests:
            request.cancel()


def _drained(request: Request, ended: dict[int, Generation]) -> bool:
    """Take what has come, keep the sequences that have ended; whether that was all. Raises what the request does."""
    try:
        while (piece := request.poll()) is not None:
            if piece.generation is not None:
                ended[piece.index] = piece.generation
    except StopIteration:
        return True
    return False
