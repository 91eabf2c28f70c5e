"""`speccompile bench`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from speccompile.cli.options import NEW_TOKENS, THREADS
from speccompile.cli.sampling_options import sampling_options
from speccompile.cli.table_output import print_table
from speccompile.errors import SpeccompileError, UsageError

if TYPE_CHECKING:
    from speccompile.measure.bench import Report

REPORTING = ("folder", "measured", "as_json", "html")
"""Parameters that decide on the report, not on the run."""


@click.command("bench")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--prompts", metavar="FILE", type=click.Path(path_type=Path), help="What to time.")
@click.option(
    "--measured", metavar="JSON", type=click.Path(path_type=Path), help="Report on what speccompile-native measured."
)
@click.option("-n", "--max-new-tokens", default=128, show_default=True, help="At most this many.", **NEW_TOKENS)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Generations a prompt and way."
)
@click.option("--threads", **THREADS)
@click.option("--engine", metavar="NAME", help="Engine of the bundle; by default the first that can run here.")
@click.option("--fixed-draft-length", is_flag=True, help="Draft in full in every round, whether it pays or not.")
@sampling_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page with plots.")
def command(
    folder: Path,
    prompts: Path | None,
    measured: Path | None,
    fixed_draft_length: bool,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Measure speculative beside autoregressive decoding with BUNDLE.

    Both run in turns in one process, prompt by prompt; then the graphs are timed by themselves, and the memory. A table
    goes to stdout, with --json to stderr. The exit code is 1 when an exact bundle gives other tokens speculatively than
    autoregressively. Above temperature 0 both have the same seed, 0 by default, and must give the same tokens unless
    drafts are drawn.

    \b
    FILE has one prompt a line: {"prompt": "text"} or {"token_ids": [1, 2, 3]};
    for targets with an encoder {"source": "text"}, which may have
    source_language and target_language, or {"audio": "talk.wav"}, a path
    relative to FILE, which may have language; otherwise it is detected;
    for targets that see {"prompt": "text", "images": ["one.png", ..]}.
    Or one question a line, as in the question.jsonl of Spec-Bench and MT-Bench:
      {"question_id": 81, "category": "writing", "turns": ["text", "text"]}
    Each turn is asked behind the answers to those before it, in the bundle's
    chat template, or, where it has none, in plain text: what was said, joined
    by newlines. MT-Bench's eight categories are one group, mt_bench.

    JSON is a file of `speccompile-native bench BUNDLE --prompts FILE --json`, measured perhaps on a machine without
    Python. --measured then measures nothing, and stands in place of --prompts and the options of the run.

    \b
    The JSON object has the keys
      bundle, exact, method, decoding, temperature, seed, limits, engine,
      kernels, threads, cpus, prompts, max_new_tokens, repeats
                           limits: the other options of sampling, by name;
                           kernels: the path that ran on the processor, none
                           for ONNX Runtime's own
      load_seconds         until the bundle was opened, its hashes compared
      memory               {resident, anonymous, mapped, peak, proportional}:
                           bytes of the process behind the generations, as far
                           as the system tells
      conversation         how questions were written: chat_template or plain;
                           null without questions
      full_prompts         prompts that ended because the buffers were full
      draft_length         adaptive or fixed; null without a drafter
      speculative          null without a drafter, else an object with
        tokens_per_second, decode_tokens_per_second
                           "decode" leaves the prefill out
        first_token_seconds
                           from the start of the prefill to the first token
        inter_token_seconds
                           {p50, p90, p99} over all tokens but the first: each
                           of the n tokens that a round gives counts with an
                           n-th of its time
        inter_token_distribution
                           the same at 1, 5, 10, .., 95, 99 per cent
        round_seconds      {p50, p90, p99}: from one output to the next, whose
                           tokens come at once
        encode_seconds     of the pictures, a part of the prefill; null without
        prefill_seconds, verify_seconds, draft_seconds, host_seconds,
        host_microseconds_per_round
                           medians of generations; "host" is the time of the
                           rounds beside their graphs
        new_tokens, rounds, drafting_rounds, mean_accepted, mean_draft_length
                           over all prompts, once each; accepted: new tokens a
                           round, the bonus token included; draft length: drafts
                           a round, 0 in those that verify none
      autoregressive       the same
      speedup              in tokens per second: the median of the ratios of
                           neighbours
      decode_speedup       the same without prefill
      acceptance_by_depth  [{depth, rounds, accepted, accepted_after_previous}]:
                           rounds that drafted so deep, and the shares that
                           accepted: of all of them, and of those in which the
                           drafts before were accepted
      groups               of questions, then "overall": [{group, prompts,
                           speculative: {tokens_per_second, mean_accepted},
                           autoregressive: the same, speedup}]: means over
                           questions, all turns and prefill included, and the
                           ratio of the means; [] without questions
      costs                of graphs alone, over {context} committed tokens
        verify             [{width, seconds, ratio}]: by the window's width, and
                           over a window of one; a fused step stands for the
                           width of decoding
        draft_seconds, host_seconds
        break_even         {width, mean_accepted, acceptance_rate}: where
                           decoding is as fast as without drafts; the rate is
                           that of every draft in a chain
        allowed_tokens_per_second, reached
                           what the rounds would give at these costs, without
                           prefill, and the share of it that was measured
      roofline             null for engines that are not on the processor
        bandwidth          {bytes_per_second, threads, buffer_bytes}: measured
                           on a buffer that no cache holds
        context            committed tokens in the caches
        speculative, autoregressive
                           {weight_bytes, cache_bytes, bytes_per_token, share}:
                           read in a round, on average, and a token; bytes per
                           second over the bandwidth. Weights count once for
                           every node that reads them, embedding tables by the
                           rows read, caches by the committed tokens
      pictures             of targets that see, as the build measured it behind
                           synthetic pictures: {tokens, same_argmax,
                           kl_divergence, encoder}: next tokens beside those of
                           transformers in float32, the divergence in nats;
                           encoder: {precision, rms_error, same_argmax,
                           kl_divergence}, the loss by its precision alone,
                           null in float32; null where nothing was measured
      equal_prompts        how many prompts got the same tokens both ways;
                           null where drafts are drawn
      differences          [{prompt, turn, index, speculative, autoregressive}]:
                           the first token that differs
      versions             {speccompile, python, numpy, ..}

    \b
    Examples:
      speccompile bench build/demo --prompts prompts.jsonl
      speccompile bench build/demo --prompts prompts.jsonl --threads 1 --json
      speccompile bench build/demo --prompts question.jsonl --html bench.html
      speccompile bench build/demo --prompts prompts.jsonl --temperature 1
      speccompile bench build/demo --measured device.json --html bench.html
    """
    from speccompile.bundle.prompts import read_questions
    from speccompile.measure.bench import check_page, report_measured, run_bench, write_page, write_table

    _check_one_source()
    if html is not None:
        check_page(html)
    if prompts is not None:
        report = run_bench(folder, read_questions(prompts), adaptive=not fixed_draft_length, **options)
    elif measured is not None:
        report = report_measured(folder, measured)
    else:
        raise click.UsageError("Missing option '--prompts'.")
    print_table(write_table(report), report.to_json() if as_json else None)
    if html is not None:
        write_page(report, html)
    _check(report)


def _check_one_source() -> None:
    """Raise UsageError for options of a run beside --measured."""
    context = click.get_current_context()
    if context.params["measured"] is None:
        return
    names = {each.name: each.opts[0] for each in context.command.params}
    given = [
        option
        for name, option in names.items()
        if name not in REPORTING and context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if given:
        raise UsageError(
            f"received {', '.join(given)} beside --measured, expected --measured alone: it reports on a finished run",
            hint="give options of the run to `speccompile-native bench`",
        )


def _check(report: "Report") -> None:
    if report.exact and report.differences:
        numbers = ", ".join(str(found.prompt) for found in report.differences)
        raise SpeccompileError(
            f"expected the same tokens both ways, received others on {len(report.differences)} of {report.prompts} "
            f"prompts: {numbers}",
            hint="`speccompile prove` shows by what margin",
        )
