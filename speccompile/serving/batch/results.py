"""File of answers: complete lines are kept, and every new line is written completely or not at all."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from speccompile.bundle.folders import naming_file
from speccompile.errors import UsageError
from speccompile.serving.batch.requests import BatchRequest

OK = 200


@dataclass(frozen=True)
class Result:
    """Answer to a line: an HTTP status, and the body that a server would have sent."""

    line: BatchRequest
    status: int
    body: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the result in OpenAI's form."""
        return {
            "id": f"batch_req_{uuid4().hex}",
            "custom_id": self.line.custom_id,
            "response": {"status_code": self.status, "request_id": self.line.request_id, "body": self.body},
            "error": None,
        }


class Results:
    """Open file of answers, locked against other processes. completed_ids: custom_ids that have succeeded."""

    def __init__(self, path: Path, handle: int, done: frozenset[str]) -> None:
        self._path, self._handle, self.completed_ids = path, handle, done
        self._start = os.lseek(handle, 0, os.SEEK_END)

    @classmethod
    @contextmanager
    def open(cls, path: Path, lines: Sequence[BatchRequest]) -> Iterator[Self]:
        """Yield the file at `path`, created if absent. An incomplete last line is dropped, and so are failed lines,
        whose requests are submitted again.

        Raise UsageError for a file that cannot be written, that another process fills, that holds something else, or
        that answers other requests under these custom_ids.
        """
        with _locked(path) as handle:
            before = path.read_bytes()
            kept, done = _rows_to_keep(path, before, {line.custom_id: line for line in lines})
            if kept == before:
                yield cls(path, handle, done)
                return
            with _replace_file(path, kept) as new:
                yield cls(path, new, done)

    def add(self, result: Result) -> None:
        """Write a line; once this returns, the end of this process does not lose it."""
        data = json.dumps(result.to_json(), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        with naming_file(self._path):
            while data:
                data = data[os.write(self._handle, data) :]

    def new_results(self) -> Iterator[dict[str, Any]]:
        """Yield the complete lines that were written since the file was opened."""
        with open(self._handle, "rb", closefd=False) as file:
            file.seek(self._start)
            for text in file:
                if text.endswith(b"\n"):
                    yield json.loads(text)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(
            f"{path}: expected a file that can be written: {error.strerror}", hint="give another file"
        ) from error
    try:
        _lock(handle, path)
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(
            f"{path}: expected a file that no other process fills", hint="wait for the other run, or give another file"
        ) from error


@contextmanager
def _replace_file(path: Path, content: bytes) -> Iterator[int]:
    """Replace the file at `path` by one with this content, and yield it open at its end: whenever this process ends,
    the old or the new file is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with _locked(part) as handle:
        os.ftruncate(handle, 0)
        with naming_file(path):
            os.write(handle, content)
        part.replace(path)
        yield handle


def _rows_to_keep(path: Path, data: bytes, asked: Mapping[str, BatchRequest]) -> tuple[bytes, frozenset[str]]:
    """Return the lines to keep, and the custom_ids of those that succeeded."""
    done: dict[str, bytes] = {}
    texts = data.split(b"\n")
    torn = texts.pop()  # empty if the last line is complete
    for number, text in enumerate(texts, 1):
        answer = _answer(path, number, text)
        if answer is not None and succeeded(answer):
            _check_same(path, number, answer, asked)
            done[answer["custom_id"]] = text
    if torn and (answer := _parsed(torn)) is not None and succeeded(answer):  # only its line end is missing
        done.setdefault(answer["custom_id"], torn)
    return b"".join(text + b"\n" for text in done.values()), frozenset(done)


def _answer(path: Path, number: int, text: bytes) -> dict[str, Any] | None:
    if not text.strip():
        return None
    answer = _parsed(text)
    if answer is None:
        raise UsageError(
            f"{path} line {number}: received a line that is no answer, expected a file that `speccompile batch` wrote",
            hint="give another file for the answers, or remove this one",
        )
    return answer


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return an answer, or None for an invalid one."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("custom_id"), str) else None


def succeeded(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer, as in the file, has succeeded."""
    response = answer.get("response")
    return isinstance(response, dict) and response.get("status_code") == OK and not answer.get("error")


def _check_same(path: Path, number: int, answer: Mapping[str, Any], asked: Mapping[str, BatchRequest]) -> None:
    """Raise UsageError if the request has changed since it was answered."""
    line, request_id = asked.get(answer["custom_id"]), answer["response"].get("request_id")
    ours = isinstance(request_id, str) and len(request_id) == len("req_") + 32
    if line is not None and ours and request_id != line.request_id:
        raise UsageError(
            f"{path} line {number}: received an answer to another request with custom_id {line.custom_id!r} than "
            f"line {line.number} asks now, expected the same to go on with",
            hint="give another file for the answers, or remove this one",
        )
