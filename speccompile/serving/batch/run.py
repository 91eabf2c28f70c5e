"""Run of a whole file: finished lines, new requests, and their summary."""

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
"""Function that yields results in completion order, each line once; closing it early drops the rest."""


@dataclass
class BatchSummary:
    """Summary of a run: given = done + failed + skipped + left. skipped: lines done before; left: lines without an
    answer because the run ended. Tokens are those of lines done now; cached_tokens: prompt tokens that were not
    prefilled."""

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
        """Count a line of the file."""
        if not succeeded(answer):
            self.failed += 1
            return
        self.done += 1
        usage = answer["response"]["body"]["usage"]
        self.prompt_tokens += usage["prompt_tokens"]
        self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
        self.new_tokens += usage["completion_tokens"]

    def to_json(self) -> dict[str, Any]:
        """Return the documented JSON object of `batch --json`."""
        rate = self.new_tokens / self.seconds if self.seconds else 0.0
        return asdict(self) | {"left": self.left, "tokens_per_second": rate}

    def __str__(self) -> str:
        left = f" + {self.left} left" if self.left else ""
        return f"{self.done} done + {self.failed} failed + {self.skipped} skipped{left} = {self.given} given"


class Batch:
    """Requests of a file, and the file for their answers. account: summary so far."""

    def __init__(self, lines: Sequence[BatchRequest], output: Path) -> None:
        self.lines, self.output, self.account = lines, output, BatchSummary(len(lines))

    @classmethod
    def read(cls, source: Path, output: Path) -> "Batch":
        """Read a file of requests. Raise UsageError for a file with lines that are no requests."""
        if output.exists() and source.exists() and output.samefile(source):
            raise UsageError(f"{output}: received the file of the requests, expected another one for the answers")
        return cls(read_lines(source), output)

    def run(self, answers: Answers) -> None:
        """Answer all lines that are not done, and write every answer as it comes. However the run ends, `account` has
        its summary, and written answers stay. Raise UsageError for a file of answers that cannot be continued."""
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
                ) in results.new_results():  # after an interrupt at any time, only the file has all written results
                    account.add(answer)
