"""Files of requests over several bundles: Ray Data hands lines to as many actors as are wanted, each with a bundle."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray
from ray.data import ActorPoolStrategy, DataContext

from speccompile.runtime import Bundle
from speccompile.serving.batch.requests import BatchRequest
from speccompile.serving.batch.results import Result
from speccompile.serving.batch.worker import BatchWorker

_AT_ONCE = 2
"""Parts that an actor has: rows that one has no more work for take that of the other."""
_MOST_PARTS = 1000
"""Of a file."""


@dataclass(frozen=True)
class BundleOptions:
    """How each actor opens the bundle."""

    folder: Path
    name: str | None
    engine: str | None
    threads: int
    speculative: bool
    verify: bool


def answers(
    lines: Sequence[BatchRequest], opening: BundleOptions, *, rows: int, replicas: int, gpus: float
) -> Iterator[Result]:
    """As `Desk.answers`, in other processes. rows: of the bundle. Neighbours go to one actor together, which has the
    next of them before it has ended these. Raises what an actor raises."""
    known = {line.custom_id: line for line in lines}
    context = DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    together = max(4 * rows, math.ceil(len(lines) / _MOST_PARTS))
    parts = ray.data.from_items([asdict(line) for line in lines], override_num_blocks=math.ceil(len(lines) / together))
    actors = ActorPoolStrategy(
        size=replicas, max_tasks_in_flight_per_actor=_AT_ONCE, max_concurrent_calls_per_actor=_AT_ONCE,
        enable_true_multi_threading=True,
    )  # fmt: skip
    answered = parts.map_batches(
        Actor, fn_constructor_args=(opening,), batch_size=None, batch_format="pandas", compute=actors,
        num_cpus=opening.threads, num_gpus=gpus,
    )  # fmt: skip
    for found in answered.iter_rows():
        yield Result(known[found["custom_id"]], int(found["status"]), json.loads(found["body"]))


class Actor:
    """A bundle in a process of its own. Ray calls it from several threads."""

    def __init__(self, opening: BundleOptions) -> None:
        bundle = Bundle.open(opening.folder, engine=opening.engine, threads=opening.threads, verify=opening.verify)
        name = opening.name or bundle.manifest.name
        self._held = ExitStack()  # until the process ends
        self._desk = self._held.enter_context(BatchWorker.open(bundle, name, speculative=opening.speculative))

    def __call__(self, lines: Any) -> Iterator[dict[str, list[Any]]]:
        """lines, answers: as tables, a row each."""
        for result in self._desk.run(BatchRequest(**line) for line in lines.to_dict("records")):
            body = json.dumps(result.body).encode()
            yield {"custom_id": [result.line.custom_id], "status": [result.status], "body": [body]}
