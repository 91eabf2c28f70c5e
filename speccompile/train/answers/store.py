"""Folder of responses.

answers.json   key of the responses: target, prompts, options
part.jsonl     lines so far, in the order of their generation, each with its prompt's number; append-only, and synced to
               the disk when `append` returns
answers.jsonl  all lines in the order of the prompts, once complete; part.jsonl is then removed
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from speccompile.bundle.folders import sync
from speccompile.errors import BuildError
from speccompile.progress import LOGGER

KEY, PART, ANSWERS = "answers.json", "part.jsonl", "answers.jsonl"

DONE, FAILED, SKIPPED = "done", "failed", "skipped"


class Store:
    """Lines by prompt number. If a number has several lines, the last one counts."""

    def __init__(self, folder: Path) -> None:
        self.part, self.whole = folder / PART, folder / ANSWERS
        self._places: dict[int, int] = {}
        """Prompt number -> offset of its line in part.jsonl."""
        self._kinds: dict[int, str] = {}

    def read(self) -> None:
        """Read the existing lines. Truncate the file at an incomplete line of a killed process."""
        if not self.part.is_file():
            return
        with self.part.open("r+b") as file:
            end = 0
            for line in iter(file.readline, b""):
                record = _record(line)
                if record is None:
                    LOGGER.info("answers: a line that was not finished is made again")
                    file.truncate(end)
                    break
                self._note(record, end)
                end += len(line)

    def has_any(self) -> bool:
        """Return whether there are lines."""
        return self.part.is_file() or self.whole.is_file()

    def has(self, number: int) -> bool:
        """Return whether a prompt was answered or skipped; a failed one is requested again."""
        return self._kinds.get(number, FAILED) != FAILED

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append lines, each with a "number", and sync them. After a crash only the first ones may be there."""
        known = list(records)
        is_new = not self.part.is_file()
        with self.part.open("ab") as file:
            place = file.seek(0, os.SEEK_END)
            for record in known:
                self._note(record, place)
                place += file.write(_line(record))
            _flush(file)
        if is_new:
            sync(self.part.parent)

    def finish(self, count: int) -> Counter[str]:
        """Write answers.jsonl of `count` prompts and return the counts of its kinds of lines.

        Raise BuildError unless there is exactly one line per prompt.
        """
        if (lines := sorted(self._places)) != list(range(count)):
            raise BuildError(
                f"{self.part}: received answers to {len(lines)} prompts, expected answers to all {count}",
                hint="remove the folder: the next run generates them again",
            )
        beside = self.whole.with_name(f".{self.whole.name}")
        with beside.open("wb") as file:
            for record in self._ordered(count):
                file.write(_line(record))
            _flush(file)
        found = account(beside)
        beside.replace(self.whole)
        sync(self.whole.parent)
        self.part.unlink()
        return found

    def _ordered(self, count: int) -> Iterator[dict[str, Any]]:
        with self.part.open("rb") as file:
            for number in range(count):
                file.seek(self._places[number])
                record = json.loads(file.readline())
                del record["number"]
                yield record

    def _note(self, record: Mapping[str, Any], place: int) -> None:
        self._places[record["number"]], self._kinds[record["number"]] = place, kind_of(record)


def account(file: Path) -> Counter[str]:
    """Count the lines of each kind. Raise BuildError for an invalid line."""
    with file.open("rb") as lines:
        found = Counter[str]()
        for number, line in enumerate(lines, 1):
            try:
                found[kind_of(json.loads(line))] += 1
            except (AttributeError, ValueError):
                raise BuildError(
                    f"{file}, line {number}: received no answer, expected a JSON object of one",
                    hint="remove the folder: the next run generates them again",
                ) from None
    return found


def kind_of(record: Mapping[str, Any]) -> str:
    return next((kind for kind in (FAILED, SKIPPED) if kind in record), DONE)


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line, or None for an incomplete one."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if line.endswith(b"\n") and isinstance(record, dict) and "number" in record else None


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
