"""`speccompile transcribe`: write down what is spoken in a sound."""

import json
from pathlib import Path

import click

from speccompile.cli.generation_output import summary
from speccompile.cli.options import NEW_TOKENS, Option, opening_options
from speccompile.progress import LOGGER, log_step


@click.command("transcribe")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.argument("sound", metavar="SOUND.wav", type=click.Path(path_type=Path))
@click.option("--language", metavar="NAME", help="Language that is spoken; by default the one that the target detects.")
@click.option(
    "--task", metavar="NAME", cls=Option, default="transcribe", show_default=True,
    help="What to write: transcribe, or translate, into English.",
)  # fmt: skip
@click.option(
    "-n", "--max-new-tokens", help="At most this many new tokens; by default what the bundle holds.", **NEW_TOKENS
)
@click.option("--autoregressive", is_flag=True, help="One token a round, without drafts.")
@click.option(
    "--fixed-draft-length", is_flag=True, help="Verify all drafts in every round, also while they do not pay."
)
@opening_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    folder: Path,
    sound: Path,
    language: str | None,
    task: str,
    max_new_tokens: int | None,
    autoregressive: bool,
    fixed_draft_length: bool,
    engine: str | None,
    threads: int | None,
    no_verify: bool,
    signed_by: Path | None,
    as_json: bool,
) -> None:
    """Write down what is spoken in SOUND.wav with BUNDLE, whose target is a Whisper.

    The sound is a WAV file of whole numbers or floats. Several channels become their mean, and another rate than the
    target's 16000 samples a second is resampled (a sinc in a window of Hann). It is at most as long as the encoder
    hears at once, 30 s for Whisper, and the text has no times.

    \b
    The JSON object has the keys of `speccompile generate --json`, and
      text      without spaces around it; null without a tokenizer
      language  given or detected; null for a target of one language
      task      transcribe or translate

    \b
    Examples:
      speccompile transcribe build/whisper talk.wav
      speccompile transcribe build/whisper talk.wav --language de --task translate --json | jq -r .text
    """
    from speccompile.runtime import Bundle

    with log_step(f"opening {folder}"):
        bundle = Bundle.open(folder, engine=engine, threads=threads, verify=not no_verify, signed_by=signed_by)
    most = bundle.manifest.max_length if max_new_tokens is None else max_new_tokens
    found = bundle.transcribe(
        sound, language, task=task, max_new_tokens=most, autoregressive=autoregressive, adaptive=not fixed_draft_length
    )
    shown = ",".join(map(str, found.generation.token_ids)) if found.text is None else found.text
    click.echo((json.dumps(found.to_json(), ensure_ascii=False) if as_json else shown).encode())
    LOGGER.info(summary(found.generation))
