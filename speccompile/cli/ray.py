"""`speccompile ray`: other commands, run on the machines of a Ray cluster."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli import batch, compare, tune
from speccompile.cli.options import FloatRange
from speccompile.cli.progress_options import without_progress_options
from speccompile.errors import UsageError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from speccompile.serving.batch.requests import BatchRequest
    from speccompile.serving.batch.results import Result

PATH = click.Path(path_type=Path)
ADDRESS = click.Option(
    ["--address"], metavar="ADDRESS", help="Of the cluster; by default $RAY_ADDRESS, else one is started here."
)
ENGINE = click.Option(["--engine"], metavar="NAME", help="Engine of the bundle; by default the first that can run.")
THREADS = click.Option(
    ["--threads"], type=click.IntRange(min=1), default=1, show_default=True,
    help="Of each replica, and the processors that Ray keeps for it.",
)  # fmt: skip
GPUS = click.Option(["--gpus"], type=FloatRange(min=0), default=0.0, help="GPUs that Ray keeps for each replica.")
REPLICAS = click.Option(
    ["--replicas"], metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="Bundles that are open."
)
NAME = click.Option(["--served-model-name", "name"], metavar="NAME", help="The model's name; by default the bundle's.")
AUTOREGRESSIVE = click.Option(
    ["--autoregressive"], is_flag=True, help="One token a round, for requests that do not ask for drafts."
)
NO_VERIFY = click.Option(["--no-verify"], is_flag=True, help="Do not compare the files with their recorded hashes.")


def _options(*options: click.Option) -> Any:
    """Return a decorator that adds these shared options to a command."""

    def add(command: click.Command) -> click.Command:
        command.params += options
        return command

    return add


@click.group("ray")
def command() -> None:
    """Serve, answer files, build and measure on the machines of a Ray cluster.

    Needs the extra ray: pip install 'speccompile[ray]'. Without --address and $RAY_ADDRESS a cluster of this machine
    alone is started, and ended with the command. On several machines speccompile is installed on each, in one version,
    and bundles, recipes, models and outputs lie at the same places, as on a shared disk.

    \b
    Examples:
      speccompile ray serve build/demo --replicas 2
      speccompile ray batch build/demo requests.jsonl answers.jsonl --replicas 2 --address auto
      speccompile ray build recipes/demo --vary drafter.tokens=[2,4,6] --vary precision.target=[int8,int4]
      speccompile ray compare recipes/demo --prompts recipes/prompts/tasks.jsonl
    """


@_options(REPLICAS, NAME, AUTOREGRESSIVE, ENGINE, THREADS, GPUS, NO_VERIFY, ADDRESS)
@command.command("serve")
@click.argument("folder", metavar="BUNDLE", type=PATH)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", metavar="N", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option("--api-key-file", "key_file", metavar="FILE", type=PATH, help="Keys, one a line, that are let in.")
@click.option("--no-page", is_flag=True, help="Leave out the page at /.")
@click.option("--min-replicas", "least", metavar="N", type=click.IntRange(min=0), help="With --max-replicas; else 1.")
@click.option("--max-replicas", "most", metavar="N", type=click.IntRange(min=1), help="Let Ray choose how many.")
@click.option(
    "--target-requests", "target", metavar="X", type=FloatRange(min=0, min_open=True),
    help="With --max-replicas: requests that each replica should have; by default its batch size.",
)  # fmt: skip
@click.option(
    "--waiting", metavar="N", type=click.IntRange(min=0), default=64, show_default=True,
    help="Requests that may wait for a replica.",
)  # fmt: skip
@click.option(
    "--grace", metavar="S", type=FloatRange(min=0), default=30.0, show_default=True,
    help="Seconds that requests get to finish when a replica ends.",
)  # fmt: skip
def serve(
    folder: Path, host: str, port: int, key_file: Path | None, name: str | None, autoregressive: bool,
    engine: str | None, no_verify: bool, waiting: int, address: str | None, replicas: int, least: int | None,
    most: int | None, target: float | None, threads: int, gpus: float, grace: float, no_page: bool,
) -> None:  # fmt: skip
    """Serve replicas of BUNDLE behind one address, as `speccompile serve` does one.

    A request goes to the replica that answered prompts that begin like its own, as its caches may hold that
    beginning; where all batch slots of that one are taken, to the next, and then to the least loaded. A client that
    hangs up ends its request. At / is the page to talk to the model. /metrics is left to Ray, as every replica counts
    for itself.

    The address is the one line on stdout, when every replica answers. SIGTERM or Ctrl-C ends them, and the exit code
    is 0.

    \b
    Examples:
      speccompile ray serve build/demo --replicas 2 --threads 4
      speccompile ray serve build/demo --max-replicas 8 --target-requests 2 --address auto --host 0.0.0.0
    """
    if most is None and (least is not None or target is not None):
        given = "--min-replicas" if least is not None else "--target-requests"
        raise UsageError(f"received {given} without --max-replicas, expected both", hint="add --max-replicas N")
    if most is not None and most < max(least or 1, replicas):
        raise UsageError(
            f"--max-replicas: received {most}, expected at least --min-replicas and --replicas, which are "
            f"{least or 1} and {replicas}", hint="give a larger one",
        )  # fmt: skip
    from speccompile.cli.serve import api_keys
    from speccompile.serving.cluster.connect import connected

    manifest = _manifest(folder)
    with connected(address):
        from speccompile.serving.cluster.replicas import Replicas
        from speccompile.serving.cluster.serving import Deployment, deploy
        from speccompile.serving.http.app import Settings
        from speccompile.serving.http.keys import Keys
        from speccompile.serving.scheduler import Limits

        settings = Settings(Keys(api_keys((), key_file)), speculative=not autoregressive, page=not no_page)
        served = Deployment(
            folder, name or manifest.name, manifest.batch_size, Limits(), settings, waiting, engine, not no_verify
        )
        many = Replicas(replicas, least, most, target, threads, gpus, grace)
        with deploy(served, many, host, port) as (where, wait):
            click.echo(where)
            try:
                wait()
            except KeyboardInterrupt:
                LOGGER.info("ending the replicas")


@_options(REPLICAS, NAME, AUTOREGRESSIVE, ENGINE, THREADS, GPUS, NO_VERIFY, ADDRESS)
@command.command("batch")
@click.argument("folder", metavar="BUNDLE", type=PATH)
@click.argument("source", metavar="IN.jsonl", type=PATH)
@click.argument("output", metavar="OUT.jsonl", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def answer_lines(
    folder: Path, source: Path, output: Path, as_json: bool, replicas: int, name: str | None, autoregressive: bool,
    engine: str | None, threads: int, gpus: float, no_verify: bool, address: str | None,
) -> None:  # fmt: skip
    """Answer the requests of IN.jsonl with several bundles, into OUT.jsonl.

    Lines, answers, the account and going on where it was stopped are those of `speccompile batch`: see its --help. Ray
    Data hands parts of the file to the replicas, prompts that begin alike together.

    \b
    Examples:
      speccompile ray batch build/demo requests.jsonl answers.jsonl --replicas 2
      speccompile ray batch build/demo requests.jsonl answers.jsonl --replicas 16 --address auto --json
    """
    from speccompile.serving.batch.run import Batch
    from speccompile.serving.cluster.connect import connected

    def answers(lines: "Sequence[BatchRequest]") -> "Generator[Result, None, None]":
        from speccompile.serving.cluster.bundle_options import BundleOptions, answers

        opening = BundleOptions(folder.resolve(), name, engine, threads, not autoregressive, not no_verify)
        yield from answers(lines, opening, rows=manifest.batch_size, replicas=replicas, gpus=gpus)

    read, manifest = Batch.read(source, output), _manifest(folder)
    with connected(address):
        batch.run(read, answers, as_json=as_json)


@_options(ADDRESS)
@command.command("build")
@click.argument("recipe", type=PATH)
@click.option(
    "--vary", "varied", metavar="KEY=[V,..]", multiple=True, help="Build with each of these values; may be repeated."
)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key for all of them.")
@click.option("--output", "-o", metavar="FOLDER", type=PATH, help="What holds their folders; build/<name>-matrix.")
@click.option("--skip-prove", is_flag=True, help="Leave the proofs out.")
@click.option("--no-cache", is_flag=True, help="Do every step anew, and keep none of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each bundle.")
def build(
    recipe: Path, varied: tuple[str, ...], overrides: tuple[str, ...], output: Path | None, skip_prove: bool,
    no_cache: bool, as_json: bool, address: str | None,
) -> None:  # fmt: skip
    """Build RECIPE in all combinations of the values that --vary gives, side by side.

    Each is the bundle that `speccompile build RECIPE --set KEY=VALUE ..` makes, in a folder of FOLDER that is called
    by its settings and printed on stdout when it is whole. All are planned first: one that the recipe cannot have
    refuses them all. Ray runs as many at once as fit into the processors and the memory, by the estimate of
    `speccompile plan`. One that fails says why, the others go on, and the exit code is 1.

    The JSON objects, one a line, have the keys settings, output and error ({message, hint}, or null).

    \b
    Examples:
      speccompile ray build recipes/demo --vary drafter.tokens=[2,4,6]
      speccompile ray build recipes/demo --vary precision.target=[float32,int8] --vary cache.batch_size=[1,4] --json
    """
    from speccompile.compiler.build.matrix import build_cells, read_cells, variant_json
    from speccompile.serving.cluster.connect import connected

    cells = read_cells(recipe, overrides, varied, output)
    failed = 0
    with connected(address):
        from speccompile.serving.cluster.pool import RayPool

        pool = RayPool(memory=max(cell.memory for cell in cells))
        for cell, error in build_cells(
            pool, recipe.resolve(), overrides, cells, prove=not skip_prove, use_build_cache=not no_cache
        ):
            if error is not None:
                failed += 1
                LOGGER.warning("%s failed: %s", cell.output.name, error)
            if as_json:
                click.echo(json.dumps(variant_json(cell, error)))
            elif error is None:
                click.echo(cell.output)
    LOGGER.warning("%d done + %d failed = %d given", len(cells) - failed, failed, len(cells))
    if failed:
        click.get_current_context().exit(1)


def _manifest(folder: Path) -> Any:
    """Return a bundle's manifest, and so refuse an invalid bundle before any machine is requested."""
    from speccompile.bundle.reader import open_bundle
    from speccompile.serving.scheduler import check_prompted

    manifest = open_bundle(folder, verify=False).manifest
    check_prompted(manifest, "replicas")
    return manifest


def _on_cluster(local: click.Command) -> click.Command:
    """Return the command with its builds and measurements as tasks of a cluster."""

    def run(address: str | None, recipe: Path, **options: Any) -> None:
        from speccompile.serving.cluster.connect import connected

        with connected(address):
            from speccompile.serving.cluster.pool import RayPool

            click.get_current_context().obj = RayPool()
            assert local.callback is not None
            local.callback(recipe=recipe.resolve(), **options)

    about = (
        f"`speccompile {local.name}`, its builds and measurements as tasks of a Ray cluster.\n\nOptions, output and "
        f"what comes out are the same: see `speccompile {local.name} --help`. Builds run side by side; a measurement "
        "has its machine to itself, so that there are as many at once as there are machines, which must be alike."
    )
    return click.Command(local.name, params=[*without_progress_options(local), ADDRESS], callback=run, help=about)


for _local in (tune.command, compare.command):
    command.add_command(_on_cluster(_local))
