"""After a build: find the smallest graph that TensorRT still refuses or crashes on, with polygraphy's `debug reduce`.

`debug reduce` looks for the earliest output that fails, `reduce_nodes` continues from the inputs. Both work on a graph
without weights, so that neither the work nor the report holds a model.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnx_ir as ir

from speccompile import __version__
from speccompile.compiler.diagnose.capability import FLAVOUR
from speccompile.compiler.diagnose.children import python_command, run_python
from speccompile.compiler.diagnose.failure import Failure, find_failure
from speccompile.compiler.diagnose.reduce_nodes import cut
from speccompile.compiler.diagnose.reduction_attempt import write_job
from speccompile.compiler.diagnose.weightless import WEIGHTS, fix_sizes, write_weightless
from speccompile.compiler.engines import Limits, Settings, flavour
from speccompile.errors import BuildError
from speccompile.progress import LOGGER, log_step

GRAPH, REPORT = "reduced.onnx", "report.txt"
"""Files of a reduction, besides the placeholders of its weights."""

_POLYGRAPHY = "import sys; from polygraphy.tools import main; sys.exit(main())"


def reduce_failure(path: Path, settings: Settings, output: Path, limits: Limits) -> Path:
    """Write the smallest graph that fails as the lowered graph `path` does to the folder `output`, and return it.

    The folder: GRAPH, WEIGHTS if the graph reads large ones, REPORT with versions, the command that shows the failure,
    and the failure. limits: of every attempt. Raise BuildError if the graph builds, if it fails only with its own
    weights, or if the folder cannot be written; EngineError if TensorRT cannot be run.
    """
    with log_step(f"trying {path.name} again"):
        failure = find_failure(path, settings, limits)
    if failure is None:
        raise BuildError(
            f"{path.name} builds for {settings.describe()}: there is nothing to reduce", hint="leave --reduce out"
        )
    _make_folder(output)
    with TemporaryDirectory(prefix="speccompile-") as folder:
        reduction = _Reduction(Path(folder), settings, limits, failure)
        shapes = reduction.write_start(path)
        with log_step("reducing the outputs"):
            reduction.reduce_outputs()
        with log_step("reducing the inputs"):
            smallest = cut(onnx.load(reduction.graph, load_external_data=False), reduction.still_fails)
        onnx.save(smallest, reduction.graph)
        write_weightless(ir.load(reduction.graph), output, GRAPH)
    again = find_failure(output / GRAPH, settings, limits)
    if again is None or not failure.is_like(again):
        raise BuildError(
            f"{output / GRAPH} failed a moment ago and does not now: the failure comes and goes",
            hint="report the whole graph, which `speccompile build --dump-graphs` keeps",
        )
    nodes = len(onnx.load(path, load_external_data=False).graph.node), len(smallest.graph.node)
    text = _report(again, settings, shapes, f"{nodes[0]} nodes of {path.name} became {nodes[1]}.")
    (output / REPORT).write_text(text)
    return output


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (GRAPH, WEIGHTS, REPORT):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise BuildError(
            f"the reduced graph cannot be written to {folder}: {error.strerror}", hint="give another folder"
        ) from error


@dataclass
class _Reduction:
    """A folder with the smallest failing graph so far, `graph`, and its required failure."""

    folder: Path
    settings: Settings
    limits: Limits
    failure: Failure

    @property
    def graph(self) -> Path:
        return self.folder / "smallest.onnx"

    def still_fails(self, model: onnx.ModelProto) -> bool:
        """Return whether a graph fails as the first one did."""
        path = self.folder / "trial.onnx"
        onnx.save(model, path)
        return self.failure.happens(path, self.settings, self.limits)

    def write_start(self, path: Path) -> Mapping[str, tuple[int, ...]]:
        """Write the graph without its weights, its sizes fixed if it then still fails. Return the fixed shapes.

        `debug reduce` would fix them itself, all to 1.
        """
        usual = {name: shapes[1] for name, shapes in self.settings.profile.items()}
        for shapes in (usual, {}) if usual else ({},):
            model = ir.load(path)
            if shapes:
                fix_sizes(model, shapes)
            write_weightless(model, self.folder, self.graph.name)
            if self.failure.happens(self.graph, self.settings, self.limits):
                return shapes
        raise BuildError(
            f"{path.name} fails with its own weights but not with others: it cannot be reduced without them",
            hint="report the whole graph, which `speccompile build --dump-graphs` keeps",
        )

    def reduce_outputs(self) -> None:
        """Reduce with polygraphy. Its failure is logged, and left to the following `cut`."""
        job, trial, result = (self.folder / name for name in ("job.json", "step.onnx", "result.onnx"))
        write_job(job, self.settings, self.limits, self.failure)
        ended = run_python(
            "-c", _POLYGRAPHY, "debug", "reduce", str(self.graph), "--output", str(result),
            "--intermediate-artifact", str(trial), "--no-reduce-inputs", "--ignore-external-data",
            "--no-shape-inference",  # it would read and copy the weights; `fix_sizes` has done it
            "--check", *python_command("-m", "speccompile.compiler.diagnose.reduction_attempt", str(job), str(trial)),
            seconds=None, folder=self.folder,
        )  # fmt: skip
        if ended.returncode == 0 and result.exists() and self.still_fails(onnx.load(result, load_external_data=False)):
            result.replace(self.graph)
        else:
            LOGGER.warning("polygraphy's debug reduce did not get far: %s", _last_line(ended.stdout + ended.stderr))


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it did not say why")


def _report(failure: Failure, settings: Settings, shapes: Mapping[str, tuple[int, ...]], size: str) -> str:
    trt = flavour.load(settings.backend)
    versions = {settings.backend: trt.__version__, "speccompile": __version__}
    versions |= {name: version(name) for name in ("polygraphy", "onnx", "onnx-graphsurgeon")}
    fixed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    lines = [
        f"TensorRT's {failure.stage} fails on {GRAPH}",
        "",
        *(f"{name} {number}" for name, number in versions.items()),
        f"python {platform.python_version()}, {platform.platform()}",
        settings.describe(),
        "",
        "It says:",
        *(f"  {line}" for line in failure.message.splitlines()),
        "",
        "In this folder, this shows it again:",
        f"  {_command(failure, settings)}",
        "",
        size,
        f"Sizes that vary were fixed: {fixed}." if fixed else "Sizes that vary still do.",
        f"Large weights are placeholders: every byte of {WEIGHTS} is the same.",
    ]
    return "\n".join(lines) + "\n"


def _command(failure: Failure, settings: Settings) -> str:
    is_rtx = settings.backend == "tensorrt_rtx"
    prefix = f"{FLAVOUR}={int(is_rtx)} polygraphy"
    if failure.stage == "parser":
        return f"{prefix} inspect capability {GRAPH} --output capability"
    target = f" --compute-capabilities {settings.compute_capability}" if is_rtx else ""
    return f"{prefix} convert {GRAPH} --convert-to trt --strongly-typed{target} --output reduced.engine"
