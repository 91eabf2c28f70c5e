"""Report on a measurement of `speccompile-native bench --json`, which may come from a machine without Python."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speccompile.bundle import open_bundle
from speccompile.bundle.image_quality import image_quality
from speccompile.errors import UsageError
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.measure import Answers, PromptRuns
from speccompile.measure.bench.report import MeasuredBundle, Measurements, Report, report_on
from speccompile.measure.bench.roofline import Bandwidth, MemoryReads, graph_weights
from speccompile.measure.bench.timed import Timed
from speccompile.runtime import Generation
from speccompile.runtime.devices.engines import named_engine
from speccompile.runtime.generation import JSON_NAMES

FIELDS = {name: field for field, name in JSON_NAMES.items()}


def report_measured(folder: Path, file: Path) -> Report:
    """Return the report of the bundle in `folder` on a JSON file of `speccompile-native bench --json`.

    Raise UsageError if the file is no such measurement, or one of another bundle, and BundleError for a bundle that is
    damaged.
    """
    opened = open_bundle(folder)
    data = _read(file)
    if data.get("bundle") != opened.manifest.name:
        raise UsageError(
            f"{file}: received a measurement of the bundle {data.get('bundle')!r}, expected one of "
            f"{opened.manifest.name!r}, which lies in {folder}",
            hint="name the folder of the bundle that was measured",
        )
    try:
        entry = named_engine(opened.manifest, data["engine"])
        cases = [_runs(number, each) for number, each in enumerate(data["prompts"], 1)]
        options, costs, bandwidth = data["options"], data["costs"], data["bandwidth"]
        curve = {point["width"]: point["seconds"] for point in costs["verify"]}
        reading = MemoryReads(Bandwidth(**bandwidth), graph_weights(folder, entry)) if bandwidth else None
        return report_on(
            MeasuredBundle(
                opened.manifest, entry, bool(cases[0].speculative), data["exact"], data["kernels"], data["threads"],
                data["cpus"], data["load_seconds"], data["versions"],
            ),
            cases,
            max_new_tokens=options["max_new_tokens"],
            adaptive=options["adaptive"],
            surroundings=Measurements(
                conversation=options["conversation"],
                memory=data["memory"],
                costs=GraphCosts(curve, costs["draft_seconds"], costs["host_seconds"]),
                context=costs["context"],
                reading=reading,
                pictures=image_quality(opened.proof, entry.name),
            ),
            **options["sampling"],
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise _refuse(file, f"{type(error).__name__}: {error}") from error


def _read(file: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise _refuse(file, str(error)) from error
    if not isinstance(data, dict) or not isinstance(data.get("prompts"), list):
        raise _refuse(file, "it has no list of prompts")
    return data


def _refuse(file: Path, reason: str) -> UsageError:
    return UsageError(
        f"--measured: received {str(file)!r}, expected a measurement: {reason}",
        hint="write one with `speccompile-native bench BUNDLE --prompts PROMPTS --json > FILE`",
    )


def _runs(number: int, data: Mapping[str, Any]) -> PromptRuns:
    return PromptRuns(number, _answers(data["speculative"]), _answers(data["autoregressive"]), data["group"])


def _answers(repeats: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Answers, ...]:
    return tuple(tuple(Timed.of(_generation(each)) for each in turns) for turns in repeats)


def _generation(data: Mapping[str, Any]) -> Generation:
    return Generation(**{FIELDS.get(name, name): value for name, value in data.items()})
