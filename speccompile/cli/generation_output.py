"""Output of a generation: the text as it comes, JSON, and the line about it on stderr."""

import json
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.words import counted
from speccompile.errors import SpeccompileError, UsageError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from speccompile.runtime import Bundle, Generation
    from speccompile.runtime.bundle import Prompt


def write_generations(
    bundle: "Bundle", prompt: "Prompt | None", options: dict[str, Any], *, count: int = 1, as_json: bool = False
) -> None:
    """Generate, and write the new text to stdout as it comes; several sequences, or JSON, at the end. options: of
    `Bundle.generate_batch`; count: number of sequences. A session that cannot be written is an error after them."""
    if not as_json and count == 1 and bundle.text is not None:
        _show(bundle, prompt, options)
        return
    try:
        generations = bundle.generate_batch([prompt], num_return_sequences=count, **options)
    except UsageError as error:
        _write_ended(error.generations, as_json=as_json)
        raise
    _write_ended(generations, as_json=as_json)


def _write_ended(generations: "Sequence[Generation]", *, as_json: bool) -> None:
    for number, generation in enumerate(generations, 1):
        if as_json:
            write_utf8(_as_json(generation))
        elif len(generations) > 1:
            write_utf8(_numbered(generation, number, len(generations)))
        else:
            write_utf8(_shown(generation) + "\n")
            LOGGER.info(summary(generation))


def _as_json(generation: "Generation") -> str:
    return json.dumps(generation.to_json(), ensure_ascii=False) + "\n"


def _numbered(generation: "Generation", number: int, count: int) -> str:
    """Return one of several sequences, with a heading."""
    LOGGER.info(f"sequence {number}: {summary(generation)}")
    return f"--- sequence {number} of {count} ---\n{_shown(generation)}\n"


def _shown(generation: "Generation") -> str:
    return ",".join(map(str, generation.token_ids)) if generation.text is None else generation.text


def _show(bundle: "Bundle", prompt: "Prompt | None", options: dict[str, Any]) -> None:
    """Stream the text; then log the summary."""
    stream = bundle.stream(prompt, **options)
    _write_pieces(stream)
    write_utf8("\n")
    if stream.generation is not None:
        LOGGER.info(summary(stream.generation))


def _write_pieces(pieces: "Iterable[str]") -> None:
    """Write text as it comes. Before an error leaves, such as for a session that cannot be saved, end the line."""
    is_begun = False
    try:
        for piece in pieces:
            write_utf8(piece)
            is_begun = True
    except SpeccompileError:
        write_utf8("\n" if is_begun else "")
        raise


def summary(generation: "Generation") -> str:
    """Return the line about a finished generation: tokens, rounds, speed, and why it ended."""
    seed = "" if generation.seed is None else f", seed {generation.seed}"
    accepted = f", {generation.acceptance_length:.2f} tokens each" if generation.acceptance_length is not None else ""
    faster = generation.estimated_speedup
    speedup = f", {faster:.2f}x autoregressive (estimated)" if faster is not None else ""
    spent = generation.encode_seconds
    encoded = "" if spent is None else f", pictures encoded in {spent:.2f} s"
    tokens = counted(len(generation.token_ids), "new token")
    return (
        f"{tokens} in {counted(generation.rounds, f'{generation.mode} round')}{accepted}, "
        f"{generation.tokens_per_second:.1f} tokens/s{speedup}{encoded}, finish reason {generation.finish_reason}{seed}"
    )


def write_utf8(text: str) -> None:
    """Write to stdout in UTF-8, whatever the terminal's encoding."""
    click.echo(text.encode(), nl=False)
