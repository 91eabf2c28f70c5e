"""`speccompile profile`."""

from pathlib import Path

import click

from speccompile.cli.options import THREADS
from speccompile.errors import UsageError


@click.command("profile", epilog="Example: speccompile profile -o this-machine.json")
@click.option(
    "-o", "--output", default=Path("-"), show_default=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The profile's file; - for stdout.",
)  # fmt: skip
@click.option("--threads", **THREADS)
def command(output: Path, threads: int | None) -> None:
    """Measure this machine for `speccompile predict`: some 15 to 30 seconds, without a model.

    The profile has the processor's name, the bandwidth of its memory by footprint, the time of the project's own
    kernels by precision, footprint and rows, that of attention, and what a node and a run cost: a JSON file of at most
    2 KB. It is kept in the cache as well, and `predict` on this machine takes it from there.
    """
    if str(output) != "-" and not output.parent.is_dir():
        raise UsageError(
            f"--output {output}: there is no folder {output.parent}", hint="create it, or give another file"
        )
    from speccompile.bundle.folders import write_atomically
    from speccompile.measure.profile import keep, measure_profile, write_profile

    text = write_profile(keep(measure_profile(threads)))
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    click.echo(output)
