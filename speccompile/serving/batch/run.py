"""A whole file: what was done before, what is asked now, and the account of it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from speccompile.errors import UsageError
from speccompile.progress import progress_counter
from speccompile.serving.batch.requests import BatchRequest, read_lines, sorted_by_prefix
from speccompile.serving.batch.results import Result, Results, succeeded

Answers = Callable[[Sequence[BatchRequest]], Generator[Result, None, None]]
"""Answers lines as they end, each once; closed before the end, it drops the rest."""


@dataclass
class BatchSummary:
    """given = done + failed + skipped + left. skipped: that were done before; left: that were not answered because the
    run ended. Tokens are of the lines that were done now; cached: of prompts, that did not have to be read."""

    given: int
    done: int = 0
    failed: int = 0
    skipped: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0

    @property
    def left(self) -> int:
        return self.given - self.done - self.failed - self.skipped

    def add(self, answer: Mapping[str, Any]) -> None:
        """A line of the file."""
        if not succeeded(answer):
            self.failed += 1
            return
        self.done += 1
        usage = answer["response"]["body"]["usage"]
        self.prompt_tokens += usage["prompt_tokens"]
        self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
        self.new_tokens += usage["completion_tokens"]

    def to_json(self) -> dict[str, Any]:
        """The documented object of `batch --json`."""
        rate = self.new_tokens / self.seconds if self.seconds else 0.0
        return asdict(self) | {"left": self.left, "tokens_per_second": rate}

    def __str__(self) -> str:
        left = f" + {self.left} left" if self.left else ""
        return f"{self.done} done + {self.failed} failed + {self.skipped} skipped{left} = {self.given} given"


class Batch:
    """A file of requests that was read, and the file for its answers. account: how far it has come."""

    def __init__(self, lines: Sequence[BatchRequest], output: Path) -> None:
        self.lines, self.output, self.account = lines, output, BatchSummary(len(lines))

    @classmethod
    def read(cls, source: Path, output: Path) -> "Batch":
        """Raises UsageError for a file with lines that are no requests."""
        if output.exists() and source.exists() and output.samefile(source):
            raise UsageError(f"{output}: received the file of the requests, expected another one for the answers")
        return cls(read_lines(source), output)

    def run(self, answers: Answers) -> None:
        """Ask what has not been done, and write every answer as it comes. Whatever ends it, `account` says how far it
        came, and what was written stays. Raises UsageError for a file of answers that cannot be gone on with."""
        account, start = self.account, perf_counter()
        with Results.open(self.output, self.lines) as results:
            pending = sorted_by_prefix([line for line in self.lines if line.custom_id not in results.completed_ids])
            account.skipped = account.given - len(pending)
            try:
                if pending:
                    with (
                        progress_counter("answering", len(pending), "requests") as advance,
                        closing(answers(pending)) as found,
                    ):
                        for result in found:
                            results.add(result)
                            advance(1)
            finally:
                account.seconds = perf_counter() - start
                for (
                    answer
                ) in results.new_results():  # an interrupt comes at any time: only the file knows what is in it
                    account.add(answer)
