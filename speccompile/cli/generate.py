"""`speccompile generate`: stream text from a prompt."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.adapter_option import USED_ADAPTER, take_adapter
from speccompile.cli.constraint_options import constraint_options, impose, take
from speccompile.cli.generation_output import write_generations
from speccompile.cli.options import IMAGES, NEW_TOKENS, SESSION, TRUNCATE, Option, opening_options
from speccompile.cli.prompt_input import SOURCES
from speccompile.cli.sampling_options import sampling_options
from speccompile.cli.source_options import read_beginning, source_options, take_source
from speccompile.errors import UsageError
from speccompile.progress import log_step

if TYPE_CHECKING:
    from speccompile.runtime import Bundle


@click.command("generate")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("-p", "--prompt", metavar="TEXT", cls=Option, help="The prompt; - for stdin.")
@click.option("--prompt-file", metavar="FILE", help="A file with the prompt, taken as it is; - for stdin.")
@click.option("--token-ids", metavar="1,2,3", help="The prompt's token ids.")
@click.option("--image", "images", **IMAGES)
@source_options
@click.option("-n", "--max-new-tokens", default=128, show_default=True, help="At most this many.", **NEW_TOKENS)
@sampling_options
@constraint_options
@click.option(
    "--num-return-sequences", metavar="N", type=int, default=1, show_default=True,
    help="Continue the prompt N times, side by side in the bundle's batch.",
)  # fmt: skip
@click.option("--logprobs", is_flag=True, help="With --json: the log-probability of every new token.")
@click.option("--stop", metavar="TEXT", multiple=True, help="End before this text. May be given several times.")
@click.option("--truncate", **TRUNCATE)
@click.option("--session", **SESSION)
@click.option("--adapter", **USED_ADAPTER)
@click.option("--chat", is_flag=True, help="Write the prompt into the tokenizer's chat template.")
@click.option("--autoregressive", is_flag=True, help="One token a round, without drafts.")
@click.option(
    "--fixed-draft-length", is_flag=True, help="Verify all drafts in every round, also while they do not pay."
)
@click.option(
    "--state", metavar="FILE", type=click.Path(path_type=Path),
    help="Go on from what the drafter learned and kept here, where the file is there, and keep it here at the end.",
)  # fmt: skip
@click.option("--reset", is_flag=True, help="With --state: begin with nothing learned, whatever the file holds.")
@opening_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each sequence at the end.")
def command(
    folder: Path,
    prompt: str | None,
    prompt_file: str | None,
    token_ids: str | None,
    engine: str | None,
    threads: int | None,
    no_verify: bool,
    signed_by: Path | None,
    as_json: bool,
    num_return_sequences: int,
    fixed_draft_length: bool,
    state: Path | None,
    reset: bool,
    images: tuple[str, ...],
    **options: Any,
) -> None:
    """Generate text with BUNDLE.

    The new text goes to stdout as it comes, in UTF-8, then a newline. A bundle without a tokenizer takes token ids
    and prints token ids. Several sequences are printed when all have ended, each below a line with its number.

    Options of sampling need a bundle that was built with decoding: sampling. Constraints need a bundle that was built
    with constraints: true, and the package llguidance; the text ends where it is complete.

    Rounds verify as many drafts as pay by the times measured here, and none while drafting does not, which never
    changes a token: where drafts are drawn (at a temperature above 0), or the bundle's method is approximate, every
    round has all of them.

    Pictures need a bundle of a target that sees them (target.images). A prompt has the target's own placeholder once
    for each of them; without any they come first.

    Some drafters learn while they draft (token_recycling). What they know is gone with the process unless --state
    names a file for it. It never changes a token, only how many drafts are accepted.

    A target with an encoder (translation, correction, summaries) reads a source; a prompt is then the beginning of the
    answer, and needs not be given.

    \b
    The JSON object, one a line where there are several sequences, has the keys
      text               the new text; null without a tokenizer
      token_ids          the new tokens
      prompt_tokens      tokens of the prompt
      rounds             verifications after the prefill
      mean_accepted      new tokens a round, the bonus token included; 1.0 is
                         autoregressive, null without a round
      seconds            time of the whole generation
      tokens_per_second  new tokens over seconds
      finish_reason      length, stop or capacity
      mode               speculative or autoregressive
      engine             name of the engine
      exact              whether the bundle's method, and its engine on this
                         processor, leave the target's output as it is
      kernels            the path of the kernels that ran, none for ONNX
                         Runtime's own, null for engines on GPUs
      seed               of the random numbers, null for greedy decoding
      logprobs           of each new token, at temperature 1; with --logprobs
      truncated_tokens   prompt tokens that were dropped; with --truncate
      cached_tokens      prompt tokens that were not read, because a session or
                         a prefix of the bundle holds them; where there are any
      encode_seconds     time of encoding the pictures; with --image

    \b
    Examples:
      speccompile generate build/demo -p 'def main(' -n 64
      speccompile generate build/demo --prompt-file - --stop $'\\n\\n' < prompt.txt
      speccompile generate build/demo --token-ids 1,2,3 --json | jq .token_ids
      speccompile generate build/demo --prompt 'def ' --temperature 0.8 --top-p 0.95 --seed 7
      speccompile generate build/demo --prompt 'def ' --temperature 1 --num-return-sequences 4
      speccompile generate build/demo --prompt 'def ' --logprobs --json | jq .logprobs
      speccompile generate build/demo --prompt 'def ' --fixed-draft-length
      speccompile generate build/typed --prompt 'A person: ' --json-schema person.json
      speccompile generate build/typed --prompt 'Is it so? ' --choice yes --choice no
      speccompile generate build/recycling --prompt 'def ' --state learned.safetensors
      speccompile generate build/demo --prompt-file long.txt --session long.session
      speccompile generate build/slots --prompt 'Roses' --adapter poet=adapters/poet
      speccompile generate build/seeing --chat --prompt 'What is this?' --image photo.jpg
      speccompile generate build/corrector --source 'She go home.'
      speccompile generate build/translator --source-file text.txt --source-language en --target-language de
    """
    options["adaptive"], options["images"] = not fixed_draft_length, list(images) or None
    prompts = dict(zip(SOURCES, (prompt, prompt_file, token_ids), strict=True))
    given = read_beginning(prompts, take_source(options), chat=options["chat"])
    if options["logprobs"] and not as_json:
        raise UsageError("received --logprobs without --json, expected both", hint="add --json")
    asked = take(options)
    if reset and state is None:
        raise UsageError("received --reset without --state, expected both", hint="add --state FILE")
    from speccompile.runtime import Bundle

    with log_step(f"opening {folder}"):
        bundle = Bundle.open(folder, engine=engine, threads=threads, verify=not no_verify, signed_by=signed_by)
    take_adapter(bundle, options)
    options["constraint"] = impose(bundle, asked)
    if state is not None:
        _begin(bundle, state, reset=reset)
    write_generations(bundle, given, options, count=num_return_sequences, as_json=as_json)
    if state is not None:
        bundle.save_kept(state)


def _begin(bundle: "Bundle", state: Path, *, reset: bool) -> None:
    """Load persistent drafter state from the file, if it exists. Raise UsageError, before any work, if the bundle has
    no such state or the file's folder is missing."""
    bundle.kept.check()
    if not state.parent.is_dir():
        raise UsageError(f"--state {state}: there is no folder {state.parent}", hint="create it, or give another file")
    if state.exists() and not reset:
        bundle.load_kept(state)
