"""`speccompile transcribe`: write down what is spoken in a sound."""

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from speccompile.cli.generation_output import summary, write_utf8
from speccompile.cli.options import NEW_TOKENS, Option, opening_options
from speccompile.errors import UsageError
from speccompile.progress import LOGGER, log_step

_THRESHOLD: dict[str, Any] = {"metavar": "X|none"}


@click.command("transcribe")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.argument("sound", metavar="SOUND", type=click.Path(path_type=Path))
@click.option("--language", metavar="NAME", help="Language that is spoken; by default the one that the target detects.")
@click.option(
    "--task", metavar="NAME", cls=Option, default="transcribe", show_default=True,
    help="What to write: transcribe, or translate, into English.",
)  # fmt: skip
@click.option("--timestamps", is_flag=True, help="Write segments with their times.")
@click.option(
    "--format", "form", type=click.Choice(["text", "srt", "vtt", "json"]), default="text", show_default=True,
    help="Form of the transcript; srt and vtt have times.",
)  # fmt: skip
@click.option("--initial-prompt", metavar="TEXT", help="Text before the sound, such as names that are spoken.")
@click.option(
    "--condition-on-previous-text", is_flag=True, help="Let the text of a window depend on the windows before it."
)
@click.option(
    "-t", "--temperature", metavar="T,..", cls=Option, default="0", show_default=True,
    help="Temperatures to try in turn until a text is plausible; above 0 in bundles that sample.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the random numbers above temperature 0.")
@click.option(
    "--compression-ratio-threshold", **_THRESHOLD,
    help="Compression ratio by zlib above which the tokens of a text are not plausible; by default 1.35.",
)  # fmt: skip
@click.option(
    "--logprob-threshold", **_THRESHOLD,
    help="Mean log-probability of its tokens below which a text is not plausible; by default -1.",
)  # fmt: skip
@click.option(
    "--no-speech-threshold", **_THRESHOLD,
    help="Probability of silence above which a text with a small log-probability is none; by default 0.6.",
)  # fmt: skip
@click.option(
    "-n", "--max-new-tokens", help="At most this many new tokens a window; by default what the bundle holds.",
    **NEW_TOKENS,
)  # fmt: skip
@click.option("--autoregressive", is_flag=True, help="One token a round, without drafts.")
@click.option(
    "--fixed-draft-length", is_flag=True, help="Verify all drafts in every round, also while they do not pay."
)
@opening_options
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(
    folder: Path,
    sound: Path,
    language: str | None,
    timestamps: bool,
    form: str,
    temperature: str,
    max_new_tokens: int | None,
    autoregressive: bool,
    fixed_draft_length: bool,
    engine: str | None,
    threads: int | None,
    no_verify: bool,
    signed_by: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Write down what is spoken in SOUND with BUNDLE, whose target is a Whisper.

    The sound is a WAV file of whole numbers or floats, of up to four hours, or, with the extra sounds, a FLAC, Ogg or
    MP3 file. Several channels become their mean, and another rate than the target's 16000 samples a second is resampled
    (a sinc in a window of Hann). What is longer than the encoder hears at once, 30 s for Whisper, is heard in windows,
    each of which begins at the last time that the text before says: Whisper's sequential algorithm. Segments are
    printed as they come.

    \b
    The JSON object has the keys of `speccompile generate --json`, and
      text      without spaces around it; null without a tokenizer
      language  given or detected; null for a target of one language
      task      transcribe or translate
      duration  seconds of the sound
      segments  start, end, text, token_ids, seek, temperature, avg_logprob, compression_ratio, no_speech_prob

    \b
    Examples:
      speccompile transcribe build/whisper talk.wav
      speccompile transcribe build/whisper talk.wav --format srt > talk.srt
      speccompile transcribe build/whisper talk.wav --language de --task translate --json | jq -r .text
      speccompile transcribe build/whisper talk.wav --temperature 0,0.2,0.4,0.6,0.8,1
    """
    from speccompile.runtime import Bundle
    from speccompile.runtime.sources import check_language

    options = _keywords(asked) | {"temperature": _numbers(temperature), "autoregressive": autoregressive}
    if max_new_tokens is not None:
        options["max_new_tokens"] = max_new_tokens
    form = _form(form, as_json=as_json)
    with log_step(f"opening {folder}"):
        bundle = Bundle.open(folder, engine=engine, threads=threads, verify=not no_verify, signed_by=signed_by)
    if language is not None and bundle.manifest.source is not None:
        check_language(bundle.manifest.source, language, "--language")
    timed = timestamps or form in ("srt", "vtt")
    found = bundle.stream_transcript(sound, language, timestamps=timed, adaptive=not fixed_draft_length, **options)
    _write(found, form, timed=timestamps)
    LOGGER.info(summary(found.result().generation))


def _form(form: str, *, as_json: bool) -> str:
    """Return the format. Raise UsageError for another one beside --json."""
    is_given = click.get_current_context().get_parameter_source("form") is ParameterSource.COMMANDLINE
    if as_json and is_given and form != "json":
        raise UsageError(
            f"--format: received {form!r} beside --json, expected one of them", hint="leave one of them out"
        )
    return "json" if as_json else form


def _write(found: Any, form: str, *, timed: bool) -> None:
    """Print the segments of a transcription as they come. timed: also in the form text with their times."""
    from speccompile.runtime.transcription.subtitles import VTT_START, shown, subtitle, timed_line

    if form == "json":
        click.echo(json.dumps(found.result().to_json(), ensure_ascii=False).encode())
        return
    write_utf8(VTT_START if form == "vtt" else "")
    for number, segment in enumerate(found, 1):
        if form != "text":
            write_utf8(subtitle(form, number, segment))
        elif timed:
            write_utf8(timed_line(segment))
        elif segment.text is None:
            write_utf8("," * (number > 1) + shown(segment))
        else:
            write_utf8(segment.text if number > 1 else segment.text.lstrip())
    if form == "text" and not timed:
        write_utf8("\n")


def _keywords(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, thresholds as numbers. Raise UsageError for one that is none."""
    found = {name: value for name, value in asked.items() if value not in (None, False)}
    for name in [name for name in found if name.endswith("_threshold")]:
        found[name] = _threshold("--" + name.replace("_", "-"), found[name])
    return found


def _threshold(option: str, text: str) -> float | None:
    """Return the number in a text, None for the word none. Raise UsageError for any other text."""
    try:
        return None if text == "none" else float(text)
    except ValueError as error:
        raise UsageError(
            f"{option}: received {text!r}, expected a number or none", hint="none switches it off"
        ) from error


def _numbers(text: str) -> list[float]:
    """Return the numbers in a text, between commas. Raise UsageError where there are other things."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--temperature: received {text!r}, expected numbers", hint="write them with commas, as in 0,0.2,0.4"
        ) from error
