"""Files of requests over several bundles: Ray Data distributes lines to actors, each with its own bundle."""

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
"""Number of parts that an actor works on at once: when one part runs out of work, the slots serve the other."""
_MOST_PARTS = 1000
"""Maximum number of parts of a file."""


@dataclass(frozen=True)
class BundleOptions:
    """Options with which each actor opens the bundle."""

    folder: Path
    name: str | None
    engine: str | None
    threads: int
    speculative: bool
    verify: bool


def answers(
    lines: Sequence[BatchRequest], opening: BundleOptions, *, rows: int, replicas: int, gpus: float
) -> Iterator[Result]:
    """Yield results like `BatchWorker.run`, from other processes. rows: batch slots of the bundle. Neighbouring lines
    go to one actor together, which gets the next part before it has finished this one. Raise an actor's error."""
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
    """A bundle in its own process. Ray calls it from several threads."""

    def __init__(self, opening: BundleOptions) -> None:
        bundle = Bundle.open(opening.folder, engine=opening.engine, threads=opening.threads, verify=opening.verify)
        name = opening.name or bundle.manifest.name
        self._held = ExitStack()  # until the process ends
        self._desk = self._held.enter_context(BatchWorker.open(bundle, name, speculative=opening.speculative))

    def __call__(self, lines: Any) -> Iterator[dict[str, list[Any]]]:
        """Answer a table of lines, and yield tables of one result each."""
        for result in self._desk.run(BatchRequest(**line) for line in lines.to_dict("records")):
            body = json.dumps(result.body).encode()
            yield {"custom_id": [result.line.custom_id], "status": [result.status], "body": [body]}
