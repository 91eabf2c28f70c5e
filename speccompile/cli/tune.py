"""`speccompile tune`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.options import NEW_TOKENS, FloatRange, Option
from speccompile.cli.table_output import print_table
from speccompile.progress import LOGGER, loading_torch

if TYPE_CHECKING:
    from speccompile.machine.executor import Executor


class Counts(click.ParamType):
    """Parameter type of comma-separated whole numbers."""

    name = "counts"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = value.split(",")
        if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= self._most for word in words):
            self.fail(f"received {value!r}, expected whole numbers from 1 to {self._most} such as 1,2,4", param, ctx)
        return tuple(sorted(set(map(int, words))))


@click.command("tune")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--prompts", metavar="FILE", type=click.Path(path_type=Path), help="By default the recipe's own.")
@click.option("-n", "--max-new-tokens", metavar="N", help="At most this many; by default as the proof.", **NEW_TOKENS)
@click.option("--repeats", type=click.IntRange(min=1), default=40, show_default=True, help="Runs of a graph and width.")
@click.option("--threads", metavar="N,..", type=Counts(1024), default=(), help="By default 1, 2 and all cores.")
@click.option("--drafts", metavar="K,..", type=Counts(16), default=(), help="Lengths of chains; default 1 to 6, 8.")
@click.option(
    "--tree", "trees", metavar="TREE", multiple=True, help="A tree as drafter.tree takes it; may be repeated."
)
@click.option("--precision", "precisions", metavar="WORD", multiple=True, help="Of the drafter; may be repeated.")
@click.option(
    "-t", "--temperature", cls=Option, type=FloatRange(min=0), default=0.0, show_default=True,
    help="Of recipes that sample.",
)  # fmt: skip
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key, as in precision.target=int4."
)
@click.option(
    "--write", "file", metavar="FILE", type=click.Path(path_type=Path), help="Write the choice as a new recipe."
)
@click.option(
    "--search-seconds",
    metavar="S",
    type=FloatRange(min=0),
    help="Of layer_skip: for its layers, 0 to keep the recipe's; default 120.",
)
@click.option("--check", is_flag=True, help="Build the choice, run it as bench does, and compare.")
@click.option("--predict", is_flag=True, help="Skip what cannot win by this machine's profile, before it is built.")
@click.option("--settings", is_flag=True, help="Print the options for build alone, as for xargs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    pool: "Executor | None",
    recipe: Path,
    overrides: tuple[str, ...],
    file: Path | None,
    settings: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Choose how RECIPE drafts: how many drafts or which tree, in which precision, on how many threads.

    RECIPE is a recipe.yaml or the folder that holds one. What drafts, and all else, stays as it is. Bundles are built
    in a temporary folder, without their proof; what they accept is seen on the prompts, and their graphs are timed.
    The choice has most tokens per second by 1 + sum(a) tokens a round, a the share of rounds that accept the draft at
    each depth, over the measured time of a round. Decoding without drafts is measured as it is, and may be chosen.

    The table that was chosen from goes to stdout; its last line is the command that builds the choice, and --threads is
    for `generate` and `bench`. With --settings that command's options alone are on stdout. The engine is the first of
    the recipe that is onnxruntime on cpu. With --drafts or --tree, those alone are tried. A recipe that samples is
    tuned for temperature 0 unless --temperature says otherwise. --write keeps no comments; relative paths lead to the
    same places.

    Where the drafter is some of the target's layers (layer_skip), they are searched first, attention and MLP halves
    apart: what the target wrote for the prompts is read once by each set that is tried, behind the target's own keys
    and values, which shows what its chains would have accepted; three bundles tell what a half costs. Halves are left
    out one by one, always that without which most tokens per second are expected, for at most --search-seconds.

    Predicted is what `bench --fixed-draft-length` calls tokens/s without prefill. All times are scaled to those of
    decoding without drafts, as a machine that does other things too is not always as fast. Of chains only the
    shortest and the longest are built: what others accept follows from the longest's (at temperature 0, exactly,
    but for what lies behind drafts that were all accepted), their time from its graph and from a line through both
    drafts.

    \b
    The JSON object has the keys
      recipe, engine, prompts, max_new_tokens, temperature
      context      committed tokens over which costs were measured
      choice       the first of the candidates
      set          KEY=VALUE for build, those of --set first
      candidates   the best first, each an object with
        drafter    chain of K, tree T, or none
        drafts, depth, width, catch_up, precision, threads
                   width: of the window; catch_up: tokens that the drafter
                   reads again in a round, which its kind and the shape decide;
                   precision: null without weights of its own
        accepted_at_depth, mean_accepted
                   share of rounds that accept the draft at depth 1, 2, ..; new
                   tokens of a round, the bonus token included
        verify_seconds, draft_seconds, host_seconds
                   of a round; draft is null where it is part of verify
        tokens_per_second
                   expected without prefill, the median over the prompts
        settings   KEY=VALUE
      draft_lines  [{precision, threads, base, slope}]: a chain's draft takes
                   base + slope * drafts seconds
      check        null, or {predicted, measured, measured_autoregressive,
                   error, predicted_speedup, measured_speedup, speedup_error}:
                   tokens per second and multiples of those without drafts;
                   errors as a share. The machine may be slower or faster
                   than it was: the speedup tells less of that.
      layers       null, or {choice, own, costs, threads, blocks, judged,
                   seconds, complete}: choice and own (the recipe's) are
                   {layers, accepted_at_depth, drafts, tokens_per_second};
                   costs are seconds: {base, attention, mlp} of a pass of a
                   draft, {verify} by width, {host}; blocks: places of the text
                   that each of `judged` sets was tried at

    \b
    Examples:
      speccompile tune recipes/demo
      speccompile tune recipes/demo --threads 1 --drafts 1,2,4 --settings | xargs speccompile build recipes/demo
      speccompile tune recipes/demo --precision int8 --tree '[2,2,1]' --tree eagle-25 --json
      speccompile tune recipes/demo --write tuned.yaml --check
    """
    from speccompile.extras import require

    require("compile", purpose="tuning")
    from speccompile.measure.tune import Job, Options, write_table
    from speccompile.measure.tune.table import settings_line
    from speccompile.measure.tune.write import check_new, write_recipe

    if file is not None:
        check_new(file)
    job = Job.read(recipe, overrides, Options(**options))
    with loading_torch():  # here: the checks above must be fast
        from speccompile.compiler.models.load import quiet_transformers

    quiet_transformers()
    found = job.run() if pool is None else job.run(pool=pool)
    if settings and not as_json:
        LOGGER.info("%s", write_table(found))
        click.echo(settings_line(found))
    else:
        table = f"{write_table(found)}\nspeccompile build {shlex.quote(str(recipe))} {settings_line(found)}"
        print_table(table, found.to_json() if as_json else None)
    if file is not None:
        write_recipe(recipe, found, file)
