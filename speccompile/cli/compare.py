"""`speccompile compare`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.exit_codes import Interrupted
from speccompile.cli.options import NEW_TOKENS, THREADS, Option
from speccompile.cli.sampling_options import NAMES, sampling_options
from speccompile.cli.table_output import print_table
from speccompile.errors import SpeccompileError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from speccompile.machine.executor import Executor
    from speccompile.measure.compare.job import Comparison
    from speccompile.measure.compare.limit import TimeLimit
    from speccompile.measure.compare.report import ComparisonReport

PATH = click.Path(path_type=Path)


@click.command("compare")
@click.argument("recipe", type=PATH)
@click.option("--prompts", metavar="FILE", type=PATH, required=True, help="Questions or prompts, one a line.")
@click.option(
    "--methods",
    cls=Option,
    aliases=("--ways",),
    metavar="FILE",
    type=PATH,
    help="YAML file of methods; by default all that the recipe allows.",
)
@click.option("--index", metavar="FOLDER", type=PATH, help="What retrieval drafts from; without it, it is left out.")
@click.option("--output", "-o", metavar="FOLDER", type=PATH, help="Results as they come; default build/<name>-methods.")
@click.option("-n", "--max-new-tokens", default=128, show_default=True, help="At most this many.", **NEW_TOKENS)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Passes through all methods.")
@click.option("--threads", **THREADS)
@click.option("--engine", metavar="NAME", help="Of the recipe; by default the first for this machine's processor.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=4.0,
    show_default=True,
    help="End with the table so far after this time; 0: measure all.",
)
@click.option("--keep-all", is_flag=True, help="Measure every method in full, also those that cannot win.")
@click.option("--adaptive", is_flag=True, help="Draft as far as it pays, as `generate` does, and not always in full.")
@sampling_options
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a key for all methods, as in target.model=x.",
)
@click.option("--no-cache", is_flag=True, help="Build every step anew, and keep none of them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", metavar="FILE", type=PATH, help="Write a page with plots.")
@click.pass_obj
def command(
    pool: "Executor | None",
    recipe: Path,
    overrides: tuple[str, ...],
    no_cache: bool,
    keep_all: bool,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Measure every drafting method that RECIPE's models allow beside autoregressive decoding, on the same prompts.

    RECIPE is a recipe.yaml or the folder that holds one. Each method is built, without a proof, into FOLDER, and
    measured in a process of its own; every pass goes through all methods, and each takes turns with a bundle that has
    no drafter, question by question. A method that can be the fastest neither overall nor on any task, even three
    standard errors or a tenth better than measured, is dropped early; --keep-all drops none. stdout gets a table, best
    first; stderr what it will take, and a line as each method is done, or on a terminal the table so far. The exit code
    is 1 when a method that must not change tokens does. A method that the recipe cannot have says why, and the others
    go on.

    After --minutes the table so far is printed, marked as incomplete, and says which methods were not measured: one
    method of each kind comes before further lengths and trees of the recipe's own. Ctrl-C prints it too, with exit code
    130.

    Rounds draft in full unless --adaptive says otherwise: so a method that loses shows by how much. What a drafter
    learns in a pass it keeps from question to question, as in use; every pass begins with nothing learned.

    Results of every pass are written as they come: the same command goes on where it was stopped. With another recipe,
    other models, prompts, options, versions or processor it says what differs, and does nothing. More --repeats, and
    other methods, are added to what is there.

    \b
    FILE of --prompts is as for `speccompile bench`: prompts, or questions of
    Spec-Bench, MT-Bench and SPEED-Bench, the latter written as lines of JSON.
    FILE of --methods gives each method a name, and a section `drafter` or settings:
      lookup-8: {kind: prompt_lookup, tokens: 8}
      short: [drafter.tokens=2]
    By default: the recipe's own drafter, also in other lengths and trees, and
    every kind that needs no training.

    \b
    The JSON object has the keys
      recipe, engine, processor, cpus, threads, kernels, conversation, versions
                  as those of `speccompile bench`
      options     {prompts, max_new_tokens, repeats, draft_length, decoding},
                  and the options of sampling that were given
      complete    false where not all was measured
      ended       why not: time, interrupted; else null
      ways        the methods, the highest ratio first, autoregressive among them
        name, kind, settings, exact, method, tree, drafts, depth, passes
                  kind: of a cascade as "model then prompt_lookup"; settings:
                  KEY=VALUE, as --set takes them
        mean_accepted, mean_draft_length
                  new tokens and drafts a round, over all rounds of a pass
        tokens_per_second, ratio
                  mean over questions, all turns and prefill included, and its
                  ratio to that of autoregression beside it (Spec-Bench's)
        decode_ratio  without prefill, the median over pairs of neighbours
        tasks     [{task, prompts, tokens_per_second, ratio, mean_accepted}],
                  "overall" last
        acceptance_by_depth, costs
                  as those of `speccompile bench`: costs has break_even and
                  allowed_tokens_per_second
        memory    bytes of a process with this bundle alone open
        beside    none: autoregression is that of the bundle without a drafter;
                  own: of the same bundle, where both do not fit into memory
        equal_prompts, differences
                  questions that got autoregression's tokens, null where drafts
                  are drawn; and where they first did not
      dropped     [{name, settings, exact, passes, prompts, tokens_per_second,
                  mean_accepted, ratio, ratio_at_most, best, best_ratio,
                  differences}]: best had best_ratio on these prompts
      unmeasured  names of methods that were left out for that
      refused     [{name, settings, reason, hint}]
      pictures    as that of `speccompile bench`, of the bundle without a
                  drafter: all methods have its target
      best        {task: name}: the highest ratio of those with equal tokens
      published   Spec-Bench's own tables, of the methods that are here:
                  {benchmark, source, settings, tables: [{device, model, rows:
                  [{method, kind, speedup, mean_accepted}]}]}

    \b
    Examples:
      speccompile compare recipes/demo --prompts recipes/prompts/tasks.jsonl
      speccompile compare recipes/demo --prompts question.jsonl --html methods.html
      speccompile compare recipes/demo --prompts question.jsonl --methods methods.yaml --json
      speccompile compare recipes/demo-sampling --prompts question.jsonl --temperature 1
    """
    from speccompile.extras import require

    require("compile", purpose="comparing")
    from speccompile.measure.bench import check_page
    from speccompile.measure.compare.job import Comparison, Options
    from speccompile.measure.compare.limit import TimeLimit

    limit = TimeLimit.of_minutes(options["minutes"])
    if html is not None:
        check_page(html)
    sampling = {name: options.pop(name) for name in NAMES}
    job = Comparison.read(
        recipe, overrides, Options(**options, sampling=sampling, use_build_cache=not no_cache, drop=not keep_all)
    )
    found = _measure(job, limit, pool, partial(_show, html=html, as_json=as_json))
    if not found.complete:
        LOGGER.warning(
            "note: the time is up; the same command goes on from what is kept in %s, --minutes 0 until all is measured",
            job.store.folder,
        )
    _check(found)


def _measure(
    job: "Comparison", limit: "TimeLimit", pool: "Executor | None", show: "Callable[[ComparisonReport], None]"
) -> "ComparisonReport":
    """Measure all methods, and show the report: also the one so far if the user interrupts."""
    from speccompile.cli.compare_live import live_table
    from speccompile.measure.compare.run import HERE, ComparisonInterrupted, run_comparison

    board = job.board(limit)
    try:
        with live_table(board):
            found = run_comparison(job, pool=pool or HERE, board=board)
    except KeyboardInterrupt as stop:
        if isinstance(stop, ComparisonInterrupted) and stop.report is not None:
            show(stop.report)
        raise Interrupted(
            f"what was measured is kept in {job.store.folder}: the same command goes on from it"
        ) from stop
    show(found)
    return found


def _show(found: "ComparisonReport", html: Path | None, *, as_json: bool) -> None:
    """Print the table on stdout, or with `as_json` the object there and the table on stderr, and write the page."""
    from speccompile.measure.compare.page import write_page
    from speccompile.measure.compare.table import write_table

    print_table(write_table(found), found.to_json() if as_json else None)
    if html is not None:
        write_page(found, html)


def _check(found: "ComparisonReport") -> None:
    if found.wrong:
        raise SpeccompileError(
            f"expected autoregression's tokens of every exact method, received others of {', '.join(found.wrong)}",
            hint="build that method with `speccompile build --set ..`, whose proof shows by what margin",
        )
