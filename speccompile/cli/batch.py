"""`speccompile batch`: answer a file of requests in OpenAI's batch format."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speccompile.cli.adapter_option import ADAPTER
from speccompile.cli.exit_codes import interrupt_code
from speccompile.cli.options import opening_options
from speccompile.progress import LOGGER, log_step

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from speccompile.serving.batch.requests import BatchRequest
    from speccompile.serving.batch.results import Result
    from speccompile.serving.batch.run import Answers, Batch, BatchSummary

PATH = click.Path(path_type=Path)


@click.command("batch")
@click.argument("folder", metavar="BUNDLE", type=PATH)
@click.argument("source", metavar="IN.jsonl", type=PATH)
@click.argument("output", metavar="OUT.jsonl", type=PATH)
@click.option("--served-model-name", "name", metavar="NAME", help="What bodies call it; by default the bundle's name.")
@click.option("--adapter", "adapters", **ADAPTER)
@click.option("--autoregressive", is_flag=True, help="One token a round, for requests that do not ask for drafts.")
@opening_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    folder: Path,
    source: Path,
    output: Path,
    name: str | None,
    adapters: tuple[str, ...],
    autoregressive: bool,
    engine: str | None,
    threads: int | None,
    no_verify: bool,
    signed_by: Path | None,
    as_json: bool,
) -> None:
    """Answer the requests of IN.jsonl with BUNDLE, side by side in its batch slots, into OUT.jsonl.

    Lines are as OpenAI's batches have them; bodies and answers are those of `speccompile serve`, without streams:

    \b
      {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
       "body": {"messages": [{"role": "user", "content": "Hello"}]}}
      {"id": "batch_req_..", "custom_id": "1", "error": null, "response":
       {"status_code": 200, "request_id": "req_..", "body": {..}}}

    url is /v1/chat/completions or /v1/completions. A file with a line that is no such request, or that has the
    custom_id of another, is refused before any work, with the lines' numbers. A body that cannot be answered gets a
    line with its status, as 400, and the others go on. Answers come in the order in which they end: requests whose
    prompts begin alike are asked one after the other, so that the beginning is read once.

    The same command goes on where it was stopped: lines of OUT.jsonl that are whole and have status 200 are not asked
    again, a torn last line is dropped, failed ones are asked again. What was done is kept, however the run ends.

    --adapter loads a LoRA adapter into a bundle with slots for adapters, which the recipe's section adapters gives it:
    a body whose field model says NAME:ADAPTER is answered with it, NAME being the model's.

    The last line on stderr says done + failed + skipped = given; skipped are those that were done before. The exit
    code is 1 when any has failed.

    \b
    The JSON object has the keys
      given, done, failed, skipped, left
                   requests; left: of a run that was stopped
      prompt_tokens, cached_tokens, new_tokens
                   of those that are done now; cached: of prompts, that a
                   batch slot had already
      seconds, tokens_per_second
                   of this run; new tokens

    \b
    Examples:
      speccompile batch build/demo requests.jsonl answers.jsonl
      speccompile batch build/demo requests.jsonl answers.jsonl --json | jq .failed
      jq -r '[.custom_id, .response.body.choices[0].message.content] | @tsv' answers.jsonl
    """
    from speccompile.bundle.reader import open_bundle
    from speccompile.runtime.adapters import read_named
    from speccompile.serving.batch.run import Batch
    from speccompile.serving.scheduler import check_prompted

    check_prompted(open_bundle(folder, verify=False).manifest, "files of requests")
    named = read_named(adapters)

    def answers(lines: "Sequence[BatchRequest]") -> "Generator[Result, None, None]":
        from speccompile.runtime import Bundle
        from speccompile.serving.batch.worker import BatchWorker

        with log_step(f"opening {folder}"):
            bundle = Bundle.open(folder, engine=engine, threads=threads, verify=not no_verify, signed_by=signed_by)
            for adapter, where in named.items():
                bundle.load_adapter(adapter, where)
        with BatchWorker.open(bundle, name or bundle.manifest.name, speculative=not autoregressive) as worker:
            yield from worker.run(lines)

    run(Batch.read(source, output), answers, as_json=as_json)


def run(batch: "Batch", answers: "Answers", *, as_json: bool) -> None:
    """Run a batch, print its summary, and exit with 1 if requests failed, or with the code of an interrupt."""
    summary, code = batch.account, 0
    try:
        batch.run(answers)
    except KeyboardInterrupt as interrupt:
        code = interrupt_code(interrupt)
        LOGGER.warning("interrupted: %s has the results so far; run the same command again to resume", batch.output)
    finally:
        if summary.seconds:  # 0 if it was refused before any work
            _print_summary(summary, batch.output, as_json=as_json)
    if code or summary.failed or summary.left:
        click.get_current_context().exit(code or 1)


def _print_summary(summary: "BatchSummary", output: Path, *, as_json: bool) -> None:
    """Log the summary as warnings, which also appear with --quiet because they are the result."""
    if summary.failed:
        LOGGER.warning("requests have failed: %s says why; the same command asks them again", output)
    LOGGER.warning("%s", summary)
    if as_json:
        click.echo(json.dumps(summary.to_json(), indent=2))
