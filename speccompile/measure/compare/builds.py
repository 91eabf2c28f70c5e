"""Build the bundles of methods in a separate process: `python -m speccompile.measure.compare.builds`."""

from pathlib import Path
from typing import Any

from speccompile.compiler.from_recipe import build_plan
from speccompile.measure.compare.limit import TimeLimit
from speccompile.measure.compare.methods import AUTOREGRESSIVE, Method
from speccompile.measure.compare.subprocess_job import Subprocess, Watch, run_apart, serve
from speccompile.measure.tune.space import TunedRecipe

MOST_KEPT = 10**9
"""Maximum bytes of a target whose builds share a process: the memory that a larger one leaves there weighs more than
the seconds of the imports."""


_KEYS = ("use_build_cache", "measure_pictures")
"""Options of `compiler.build.build` in a job."""


class Builder:
    """Builder of methods for the source's engine, without proofs. One process imports once and builds all of them, if
    the target is small. Used in a `with` block."""

    def __init__(self, source: TunedRecipe, *, use_build_cache: bool, watch: Watch, limit: TimeLimit) -> None:
        """watch: receives the events of the process. limit: ends it."""
        self._source, self._use_build_cache, self._watch, self._limit = source, use_build_cache, watch, limit
        self._process = Subprocess(__name__)
        self._keeps = source.plan.target.facts.weight_bytes <= MOST_KEPT

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def build(self, method: Method, output: Path) -> None:
        """Build a method's bundle. Raise as `build_method` does."""
        job = _job(self._source, method, output, use_build_cache=self._use_build_cache)
        self._process.run(job, f"building {method.name}", self._watch, self._limit)
        if not self._keeps:
            self._process.close()


def build_method(source: TunedRecipe, method: Method, output: Path, use_build_cache: bool) -> None:
    """Build the method's bundle for the source's engine into `output`, without a proof, in a process of its own.

    Raise the errors of a build, and EngineError if its process ended without an answer.
    """
    run_apart(__name__, _job(source, method, output, use_build_cache=use_build_cache), f"building {method.name}")


def _job(source: TunedRecipe, method: Method, output: Path, *, use_build_cache: bool) -> dict[str, Any]:
    return {
        "recipe": str(source.path),
        "overrides": source.overrides,
        "engine": source.engine.name,
        "settings": method.settings,
        "output": str(output),
        "use_build_cache": use_build_cache,
        "measure_pictures": method.name == AUTOREGRESSIVE,  # once: all methods have its target
    }


def _build(job: dict[str, Any], tell: Watch) -> None:
    plan = TunedRecipe.of(Path(job["recipe"]), job["overrides"], job["engine"]).planned(*job["settings"])
    build_plan(plan, Path(job["output"]), notes=(), prove=False, **{name: job[name] for name in _KEYS})


if __name__ == "__main__":
    serve(_build)
