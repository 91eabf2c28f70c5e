"""`speccompile build`."""

from pathlib import Path

import click


@click.command(
    epilog="Examples: speccompile build recipes/demo, or with another number of drafts and another place: "
    "speccompile build recipes/demo --set drafter.tokens=6 --output build/demo6"
)
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Bundle folder; build/<name> by default.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in drafter.tokens=6.")
@click.option("--skip-prove", is_flag=True, help="Leave the proof out. The bundle says that it is not proven.")
@click.option("--dump-graphs", metavar="DIR", type=click.Path(path_type=Path), help="Keep neutral and lowered graphs.")
@click.option("--reduce", is_flag=True, help="Leave a minimal graph in OUTPUT.reduced for each that TensorRT refuses.")
@click.option("--no-cache", is_flag=True, help="Do every step anew, and keep none of them.")
def command(
    recipe: Path,
    output: Path | None,
    overrides: tuple[str, ...],
    skip_prove: bool,
    dump_graphs: Path | None,
    reduce: bool,
    no_cache: bool,
) -> None:
    """Build a bundle from RECIPE, and prove that it gives the target's own tokens.

    RECIPE is a recipe.yaml or the folder that holds one. The bundle's folder is printed on stdout. A build that fails
    keeps nothing and leaves an older bundle as it was; exit code 3 says that the proof failed.

    TensorRT engines are built in a process of their own, for at most $SPECCOMPILE_BUILDER_SECONDS (an hour) each and
    with at most $SPECCOMPILE_BUILDER_MEMORY_GB (nine tenths of the machine's), and are kept in a cache: see
    `speccompile cache --help`. When one is refused, the others are still built and the exit code is 1.

    Steps whose inputs are what they were in an earlier build are taken from a cache, and stderr says which: probing,
    tracing, lowering, quantized weights, the levels of the proof. The bundle is the same with --no-cache.

    Where there is clearly too little disk or memory for it, a build is refused before the work: `speccompile plan`
    shows what it needs.
    """
    from speccompile.bundle.writer import check_output
    from speccompile.progress import LOGGER
    from speccompile.recipe import load_recipe, make_plan
    from speccompile.recipe.resource_estimate import estimate_resources
    from speccompile.recipe.resources import check_resources, find_resources, with_estimate

    plan = make_plan(load_recipe(recipe, overrides))
    output = output or Path("build") / plan.name
    check_output(output)
    needs, room = estimate_resources(plan), find_resources(output)
    check_resources(needs, room)
    for note in plan.notes:
        LOGGER.warning("note: %s", note)
    try:
        from speccompile.compiler.build import build  # imports torch: the checks above must be fast
        from speccompile.compiler.models.load import quiet_transformers

        quiet_transformers()
        click.echo(
            build(plan, output, prove=not skip_prove, dump_graphs=dump_graphs, reduce=reduce, remember=not no_cache)
        )
    except Exception as error:
        raise with_estimate(error, needs, room) from error
