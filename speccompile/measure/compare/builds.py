"""Build the bundle of a method in a separate process: `python -m speccompile.measure.compare.builds JOB ANSWER`."""

from pathlib import Path
from typing import Any

from speccompile.measure.compare.methods import Method
from speccompile.measure.compare.subprocess_job import run_apart, serve
from speccompile.measure.tune.space import TunedRecipe


def build_way(source: TunedRecipe, way: Method, output: Path, *, remember: bool) -> None:
    """Build the method's bundle for the source's engine into `output`, without a proof. remember: use the build cache.

    Raise the errors of a build, and EngineError if its process ended without an answer.
    """
    job = {
        "recipe": str(source.path),
        "overrides": source.overrides,
        "engine": source.engine.name,
        "settings": way.settings,
        "output": str(output),
        "remember": remember,
    }
    run_apart(__name__, job, f"building {way.name}")


def _build(job: dict[str, Any]) -> None:
    from speccompile.compiler.build import build  # imports torch
    from speccompile.compiler.models.load import quiet_transformers
    from speccompile.recipe.resource_estimate import estimate_resources
    from speccompile.recipe.resources import check_resources, find_resources

    output = Path(job["output"])
    plan = TunedRecipe.of(Path(job["recipe"]), job["overrides"], job["engine"]).planned(*job["settings"])
    check_resources(estimate_resources(plan), find_resources(output))
    quiet_transformers()
    output.parent.mkdir(parents=True, exist_ok=True)
    build(plan, output, prove=False, remember=job["remember"])


if __name__ == "__main__":
    serve(_build)
