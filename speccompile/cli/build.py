"""`speccompile build`."""

from pathlib import Path

import click

from speccompile.cli.model_bundle import ModelOptions, build_model, keeping_steps, model_options


@click.command(
    epilog="Examples: speccompile build recipes/demo, or with another number of drafts and another place: "
    "speccompile build recipes/demo --set drafter.tokens=6 --output build/demo6"
)
@click.argument("recipe", metavar="RECIPE|MODEL")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Bundle folder; build/<name> by default.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in drafter.tokens=6.")
@model_options
@click.option("--skip-prove", is_flag=True, help="Leave the proof out. The bundle says that it is not proven.")
@click.option("--dump-graphs", metavar="DIR", type=click.Path(path_type=Path), help="Keep neutral and lowered graphs.")
@click.option("--reduce", is_flag=True, help="Leave a minimal graph in OUTPUT.reduced for each that TensorRT refuses.")
@click.option("--no-cache", is_flag=True, help="Do every step anew, and keep none of them.")
def command(
    recipe: str,
    output: Path | None,
    overrides: tuple[str, ...],
    built_as: ModelOptions,
    skip_prove: bool,
    dump_graphs: Path | None,
    reduce: bool,
    no_cache: bool,
) -> None:
    """Build a bundle from RECIPE or MODEL, and prove that it gives the target's own tokens.

    RECIPE is a recipe.yaml or the folder that holds one. For MODEL, a folder in Hugging Face layout, a GGUF file or
    a Hub id, a recipe is made as `speccompile init` does, and kept in the bundle; --drafter, --precision, --tokenizer
    and --fast are for it.

    The bundle's folder is printed on stdout. A build that fails keeps nothing and leaves an older bundle as it was;
    exit code 3 says that the proof failed.

    TensorRT engines are built in a process of their own, for at most $SPECCOMPILE_BUILDER_SECONDS (an hour) each and
    with at most $SPECCOMPILE_BUILDER_MEMORY_GB (nine tenths of the machine's), and are kept in a cache: see
    `speccompile cache --help`. When one is refused, the others are still built and the exit code is 1.

    Steps whose inputs are what they were in an earlier build are taken from a cache, and stderr says which: probing,
    tracing, lowering, quantized weights, the levels of the proof. The bundle is the same with --no-cache.

    Where there is clearly too little disk or memory for it, a build is refused before the work: `speccompile plan`
    shows what it needs.
    """
    from speccompile.recipe.model_request import is_model

    if is_model(recipe):
        built = build_model(
            built_as.request(recipe, sampling=False), output, overrides=overrides, prove=not skip_prove,
            dump_graphs=dump_graphs, reduce=reduce, use_build_cache=not no_cache,
        )  # fmt: skip
        click.echo(built)
        return
    built_as.refuse_for_recipe(recipe)
    from speccompile.compiler.from_recipe import build

    with keeping_steps(use_build_cache=not no_cache):
        built = build(
            recipe, output, overrides=overrides, prove=not skip_prove, dump_graphs=dump_graphs, reduce=reduce,
            cache=not no_cache,
        )  # fmt: skip
    click.echo(built)
