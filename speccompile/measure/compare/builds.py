"""A way's bundle, built in a process of its own: `python -m speccompile.measure.compare.builds JOB ANSWER`."""

from pathlib import Path
from typing import Any

from speccompile.measure.compare.apart import run_apart, serve
from speccompile.measure.compare.ways import Way
from speccompile.measure.tune.space import Source


def build_way(source: Source, way: Way, output: Path, *, remember: bool) -> None:
    """Build its bundle for the source's engine into `output`, without a proof. remember: use the cache of builds.

    Raises what a build raises, and EngineError for one that ended otherwise.
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
    from speccompile.recipe.needs import needs_of
    from speccompile.recipe.room import check_room, find_room

    output = Path(job["output"])
    plan = Source.of(Path(job["recipe"]), job["overrides"], job["engine"]).planned(*job["settings"])
    check_room(needs_of(plan), find_room(output))
    quiet_transformers()
    output.parent.mkdir(parents=True, exist_ok=True)
    build(plan, output, prove=False, remember=job["remember"])


if __name__ == "__main__":
    serve(_build)
