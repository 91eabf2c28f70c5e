"""`speccompile chat`: talk to a model or a bundle in a terminal."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.bundle.sources import AUDIO
from speccompile.cli.adapter_option import USED_ADAPTER, take_adapter
from speccompile.cli.conversation import Conversation, refuse_pictures
from speccompile.cli.generation_output import summary
from speccompile.cli.model_bundle import ModelOptions, model_options, open_model
from speccompile.cli.options import IMAGES, NEW_TOKENS, SESSION, THREADS
from speccompile.cli.sampling_options import needs_sampling, sampling_options
from speccompile.cli.typed_messages import on_interrupt, typed_messages
from speccompile.errors import SpeccompileError, UsageError

if TYPE_CHECKING:
    from speccompile.runtime import Bundle
    from speccompile.serving.scheduler import OutputDelta

COMMANDS = {
    "/system": "TEXT: what the model is told before all messages; alone, nothing",
    "/image": "FILE: a picture for the next message, of a bundle that sees pictures",
    "/regenerate": "another answer to the last message",
    "/stats": "tokens, tokens/s and accepted drafts of the last answer",
    "/save": "FILE: the conversation, as JSON into a file *.json, else as text",
    "/clear": "forget the conversation",
    "/help": "this list",
    "/exit": "end; so does Ctrl-D",
}
"""Command of a chat -> its line of /help."""

DRAFTED = "green"
"""Colour of accepted draft tokens."""


@click.command("chat")
@click.argument("model", metavar="BUNDLE|MODEL")
@click.option(
    "-n", "--max-new-tokens", default=512, show_default=True, help="At most this many an answer.", **NEW_TOKENS
)
@click.option("--system", metavar="TEXT", help="What the model is told before all messages.")
@click.option(
    "--truncate", type=click.Choice(["left"]),
    help="Read the oldest messages no longer where they leave no room for an answer; by default it is refused.",
)  # fmt: skip
@click.option("--session", **SESSION)
@click.option("--adapter", **USED_ADAPTER)
@click.option("--image", "images", **IMAGES)
@click.option("--show-drafts", is_flag=True, help="Colour the tokens that were drafted and accepted.")
@model_options
@sampling_options
@click.option("--autoregressive", is_flag=True, help="One token a round, without drafts.")
@click.option("--threads", **THREADS)
@click.option("--skip-prove", is_flag=True, help="Where the bundle has to be built: do not prove it.")
def command(
    model: str,
    system: str | None,
    session: Path | None,
    images: tuple[str, ...],
    show_drafts: bool,
    built_as: ModelOptions,
    threads: int | None,
    skip_prove: bool,
    **options: Any,
) -> int:
    """Talk to BUNDLE, or to MODEL, which `speccompile run` would build: see its --help.

    A message ends with its line; a line that ends with a backslash goes on, and so does what begins with three
    quotation marks, to the next three. Ctrl-C stops an answer, which stays as far as it came; Ctrl-D ends the chat.
    Without a chat template the model continues the text of all messages. A message that begins with a space or a path
    such as /usr/bin is no command.

    With --image the bundle of a model sees pictures, where the model does: those of the option come with the first
    message, others with /image. A bundle is as it was built.

    Commands: /system TEXT, /image FILE, /regenerate, /stats, /save FILE, /clear, /help, /exit.

    Where stdin is no terminal, every line of it is a message, and the exit code is 1 when one was refused.

    \b
    Examples:
      speccompile chat build/demo --show-drafts
      speccompile chat organisation/model --fast --system 'Answer in one sentence.' -t 0.7
    """
    sampling = needs_sampling(options)
    refuse_images(images, options, session)
    with open_model(model, built_as, sampling=sampling, threads=threads, prove=not skip_prove, images=images) as bundle:
        take_adapter(bundle, options)
        refused = converse(bundle, options, system=system, show_drafts=show_drafts, session=session, images=images)
    return int(refused > 0 and not sys.stdin.isatty())


def refuse_images(images: Sequence[str], options: dict[str, Any], session: Path | None) -> None:
    """Raise UsageError, before anything is built, for pictures in a chat that takes none."""
    for path in images[:1]:
        drops_oldest = options.get("truncate") is not None
        refuse_pictures(f"{_IMAGE} {path}", keeps=session is not None, drops_oldest=drops_oldest)


_IMAGE = "--image"


def require_terminal() -> None:
    """Raise UsageError unless stdin is a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "received no prompt, and stdin is no terminal to chat on",
            hint="give a prompt, or - to read it from stdin; `speccompile chat` takes a message a line",
        )


def _refuse_encoder(bundle: "Bundle") -> None:
    """Raise UsageError for a target that answers to sources, before anything is typed."""
    source = bundle.manifest.source
    if source is not None:
        raise UsageError(
            f"this bundle's target {'hears' if AUDIO in source else 'reads sources'}: there is no conversation with it",
            hint="use transcribe" if AUDIO in source else "use generate --source",
        )


def converse(
    bundle: "Bundle", options: dict[str, Any], *, system: str | None, show_drafts: bool, session: Path | None = None,
    images: Sequence[str] = (),
) -> int:  # fmt: skip
    """Read messages from stdin and write the answers to stdout until there are no more; return how many were refused.
    session: file of the conversation, continued if it exists, written at the end; images: files of pictures for the
    first message. Raise EngineError for an engine that fails, UsageError for a file that cannot be used."""
    if bundle.text is None:
        raise UsageError(
            "this bundle has no tokenizer, so there is no text to talk in", hint="use generate --token-ids"
        )
    _refuse_encoder(bundle)
    messages = _resumed(bundle, session)
    with bundle.serve() as service:
        drops_oldest, keeps = options.pop("truncate", None) is not None, session is not None
        conversation = Conversation(bundle, service, options, system, messages, keeps=keeps, drops_oldest=drops_oldest)
        for image in images:
            conversation.show(Path(image), _IMAGE)
        if sys.stdin.isatty():
            with suppress(ImportError):
                import readline  # noqa: F401 - arrows recall and edit what was typed
            _say(_greeting(bundle))
        coloured = show_drafts and _has_colours()
        if show_drafts and not coloured:
            _say("there are no colours here: accepted draft tokens are not marked")
        refused = 0
        for message in typed_messages():
            try:
                if not _handle(conversation, message, coloured=coloured):
                    break
            except SpeccompileError as error:
                refused += 1
                _say(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))

    if session is not None and conversation.last is not None:
        bundle.save_session(session, notes={_MESSAGES: json.dumps(conversation.messages)})
    return refused


_MESSAGES = "messages"
"""Note of a session that holds the messages of a chat, in JSON."""


def _resumed(bundle: "Bundle", session: Path | None) -> list[dict[str, str]]:
    """Load a session, and return its messages; none without a file. Raise UsageError."""
    from speccompile.runtime.sessions import check_session

    path = check_session(session, 1, side_by_side=True)
    if path is None or not path.exists():
        return []
    count, notes = len(bundle.load_session(path)), bundle.session_notes
    messages = _messages_of(notes.get(_MESSAGES, ""))
    if messages is None:
        raise UsageError(
            f"--session {path}: received the session of a single prompt, expected that of a chat",
            hint="give another file",
        )
    _say(f"{path}: going on after {len(messages)} messages, {count} tokens")
    return messages


def _messages_of(note: str) -> list[dict[str, str]] | None:
    """Return the messages in a note; None for that of another program."""
    try:
        found = json.loads(note)
    except (ValueError, RecursionError):
        return None
    are_messages = isinstance(found, list) and all(
        isinstance(each, dict) and {"role", "content"} <= each.keys() and all(isinstance(v, str) for v in each.values())
        for each in found
    )
    return found if are_messages else None


def _handle(conversation: Conversation, message: str, *, coloured: bool) -> bool:
    """Answer a message, or do what a command asks for. Return whether the chat goes on."""
    word, _, rest = message.strip().partition(" ")
    if not word.startswith("/") or "/" in word[1:] or message.startswith(" "):
        _show(conversation, conversation.ask(message), coloured=coloured)
        return True
    match word:
        case "/exit":
            return False
        case "/regenerate":
            _show(conversation, conversation.regenerate(), coloured=coloured)
        case "/system":
            conversation.system = rest.strip() or None
            _say("from the next answer on" if conversation.system else "the system message is gone")
        case "/image":
            count = conversation.show(_file(word, rest, "photo.jpg"))
            _say(f"the next message shows {count} picture{'s' * (count > 1)}")
        case "/stats":
            _say(summary(conversation.last) if conversation.last else "there is no answer yet")
        case "/save":
            conversation.save(_file(word, rest, "chat.json"))
            _say(f"saved to {rest.strip()}")
        case "/clear":
            conversation.clear()
            _say("forgotten")
        case "/help":
            _say("\n".join(f"{name:<12} {text}" for name, text in COMMANDS.items()))
        case _:
            guess = next(iter(get_close_matches(word, COMMANDS, n=1)), None)
            hint = f"did you mean {guess}?" if guess else "see /help"
            raise UsageError(f"received the command '{word}', expected one of {', '.join(COMMANDS)}", hint=hint)
    return True


def _file(word: str, rest: str, example: str) -> Path:
    """Return the file that a command names. Raise UsageError without one."""
    if not rest.strip():
        raise UsageError(f"received {word} without a file, expected one", hint=f"for example {word} {example}")
    return Path(rest.strip()).expanduser()


def _show(conversation: Conversation, deltas: "Iterator[OutputDelta]", *, coloured: bool) -> None:
    """Write an answer as it comes. Ctrl-C ends the answer."""
    paint = _painter(conversation) if coloured else lambda delta: delta.text
    with on_interrupt(lambda *_: conversation.stop()):
        for delta in deltas:
            click.echo(paint(delta).encode(), nl=False)
    click.echo()
    last = conversation.last
    if last is not None and last.finish_reason in ("length", "capacity", "cancelled"):
        _say(ENDS[last.finish_reason])


ENDS = {
    "length": "(cut after --max-new-tokens)",
    "capacity": "(cut: the bundle's cache is full; /clear makes room)",
    "cancelled": "(stopped)",
}
"""Finish reason -> its message."""


def _painter(conversation: Conversation) -> "Callable[[OutputDelta], str]":
    """Return a function that colours the accepted draft tokens in the text of one answer."""
    from speccompile.serving.scheduler.draft_spans import DraftSpans

    spans: DraftSpans | None = None

    def paint(delta: "OutputDelta") -> str:
        nonlocal spans
        spans = spans or DraftSpans(conversation.bundle.text, conversation.asked)
        parts = spans.read(delta, delta.text)["spans"]
        return "".join(click.style(part["text"], fg=DRAFTED) if part["draft"] else part["text"] for part in parts)

    return paint


def _greeting(bundle: "Bundle") -> str:
    drafts = "with drafts" if bundle.speculative else "without drafts"
    template = "" if bundle.chat_template else "; it has no chat template: your text is continued as it is"
    return f"{bundle.manifest.name}, {drafts}{template}. /help lists commands, Ctrl-D ends."


def _has_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _say(text: str) -> None:
    click.echo(text, err=True)
