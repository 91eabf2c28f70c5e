"""Build and run a checkpoint in a subprocess: `python -m speccompile.train.evaluate.subprocess_job`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speccompile.measure.compare.subprocess_job import serve


def _run(job: dict[str, Any]) -> dict[str, Any]:
    from speccompile.compiler.from_recipe import build_plan
    from speccompile.recipe import load_recipe, make_plan
    from speccompile.runtime import Bundle

    plan = make_plan(load_recipe(Path(job["recipe"]), job["settings"]))
    with TemporaryDirectory(prefix="compiled-", dir=job["work"]) as work:
        output = Path(work) / "bundle"
        build_plan(plan, output, notes=(), prove=False, use_build_cache=job["use_build_cache"])
        bundle = Bundle.open(output, verify=False)
        settings = {"max_new_tokens": job["max_new_tokens"], "adaptive": False}
        name = "prompt" if plan.source is None else "source"
        read = job["sounds"] or [{name: each} for each in job["prompts"]]
        found = [bundle.generate(**each, **settings) for each in read]
    tokens, kind = plan.drafter.tokens, plan.drafter.tree.kind
    return {
        "shape": f"chain of {tokens}" if kind == "chain" else f"{kind} tree of {tokens}",
        "new": [one.token_ids for one in found],
        "paths": [one.path_lengths for one in found],
    }


if __name__ == "__main__":
    serve(lambda job, _: _run(job))
