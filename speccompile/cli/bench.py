"""`speccompile bench`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.sampling_options import sampling_options
from speccompile.errors import SpeccompileError
from speccompile.progress import step

if TYPE_CHECKING:
    from speccompile.bench import Report


@click.command("bench")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--prompts", metavar="FILE", type=click.Path(path_type=Path), required=True, help="The prompts to time.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="At most this many.")
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Generations a prompt and way."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads for the engine; by default its own choice.")
@click.option("--engine", metavar="NAME", help="Engine of the bundle; by default the first that can run here.")
@sampling_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    folder: Path,
    prompts: Path,
    max_new_tokens: int,
    repeats: int,
    threads: int | None,
    engine: str | None,
    as_json: bool,
    **sampling: Any,
) -> None:
    """Measure speculative beside autoregressive decoding with BUNDLE.

    Both run in turns in one process, prompt by prompt. The exit code is 1 when an exact bundle gives other tokens
    speculatively than autoregressively. Above temperature 0 both have the same seed, 0 by default, and must give the
    same tokens unless drafts are drawn.

    \b
    FILE has one prompt a line: {"prompt": "text"} or {"token_ids": [1, 2, 3]}.

    \b
    The JSON object has the keys
      bundle, exact, method, decoding, temperature, seed, limits, engine,
      threads, cpus, prompts, max_new_tokens, repeats
                           limits: the other options of sampling, by name
      speculative          {tokens_per_second, decode_tokens_per_second,
                           prefill_seconds, verify_seconds, draft_seconds,
                           host_seconds, host_microseconds_per_round,
                           new_tokens, rounds, mean_accepted}; null without a
                           drafter. "decode" leaves the prefill out; times are
                           medians of generations; "host" is the time of the
                           rounds beside their graphs
      autoregressive       the same
      speedup              in tokens per second: the median of the ratios of
                           neighbours
      decode_speedup       the same without prefill
      acceptance_by_depth  [{depth, accepted, accepted_after_previous}]: shares
                           of all rounds, and of those in which the drafts
                           before were accepted
      equal_prompts        how many prompts got the same tokens both ways;
                           null where drafts are drawn
      differences          [{prompt, index, speculative, autoregressive}]: the
                           first token that differs
      versions             {speccompile, python, numpy, ..}

    \b
    Examples:
      speccompile bench build/demo --prompts prompts.jsonl
      speccompile bench build/demo --prompts prompts.jsonl --threads 1 --json
      speccompile bench build/demo --prompts prompts.jsonl --temperature 1
    """
    from speccompile.bench import make_report, measure, write_table
    from speccompile.bundle.prompts import read_prompts
    from speccompile.runtime import Bundle

    asked = read_prompts(prompts)
    with step(f"opening {folder}"):
        bundle = Bundle.open(folder, engine=engine, threads=threads)
    if sampling["seed"] is None and sampling["temperature"] and bundle.manifest.decoding == "sampling":
        sampling["seed"] = 0
    cases = measure(bundle, asked, max_new_tokens=max_new_tokens, repeats=repeats, **sampling)
    report = make_report(bundle, cases, threads=threads, max_new_tokens=max_new_tokens, **sampling)
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else write_table(report))
    _check(report)


def _check(report: "Report") -> None:
    if report.exact and report.differences:
        numbers = ", ".join(str(found.prompt) for found in report.differences)
        raise SpeccompileError(
            f"expected the same tokens both ways, received others on {len(report.differences)} of {report.prompts} "
            f"prompts: {numbers}",
            hint="`speccompile prove` shows by what margin",
        )
