"""`speccompile init`: write a recipe for a model."""

from pathlib import Path

import click

from speccompile.cli.model_bundle import ModelOptions, model_options
from speccompile.errors import UsageError
from speccompile.progress import LOGGER


@click.command("init")
@click.argument("model")
@model_options
@click.option(
    "-o", "--output", default=Path("recipe.yaml"), show_default=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The recipe's file; - for stdout.",
)  # fmt: skip
@click.option("--sampling", is_flag=True, help="Temperatures above 0 can be asked for: decoding: sampling.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def command(
    model: str,
    built_as: ModelOptions,
    output: Path,
    sampling: bool,
    force: bool,
) -> None:
    """Write a recipe for MODEL, a folder in Hugging Face layout, a GGUF file or a Hub id, with a comment for every key.

    Its values are those that `speccompile run` decides for this machine. The file's path is printed on stdout.

    \b
    Examples:
      speccompile init recipes/demo/target --drafter recipes/demo/drafter -o demo.yaml
      speccompile init organisation/model --fast -o - | less
    """
    is_stdout = str(output) == "-"
    if not is_stdout and output.exists() and not force:
        what = "folder" if output.is_dir() else "file"
        raise UsageError(
            f"--output {output}: received a {what} that is there, expected a new file",
            hint="give another --output, or --force to replace a file",
        )
    request = built_as.request(model, sampling=sampling)
    if not is_stdout and not output.parent.is_dir():
        raise UsageError(
            f"--output {output}: there is no folder {output.parent}", hint="create it, or give another file"
        )
    from speccompile.bundle.folders import write_atomically
    from speccompile.recipe.model_recipe import make_model_recipe

    made = make_model_recipe(request, relative_to=None if is_stdout else output.parent)
    for note in made.notes:
        LOGGER.info("note: %s", note)
    if is_stdout:
        click.echo(made.text, nl=False)
        return
    write_atomically(output, made.text.encode())
    LOGGER.info("build it with: speccompile build %s", output)
    click.echo(output)
