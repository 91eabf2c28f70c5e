"""A conversation with a bundle: its messages, and one answer at a time, which can be stopped."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccompile.bundle.folders import write_atomically
from speccompile.errors import PromptError, UsageError
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from speccompile.runtime import Bundle, Generation
    from speccompile.serving.scheduler import OutputDelta, Request, Service

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"


@dataclass
class Conversation:
    """Messages with a bundle, as {"role", "content"}, and answers to them.

    options: of `Bundle.generate_batch`, for every answer; keeps: whether the conversation is saved as a session;
    drops_oldest: whether the oldest messages are left out of the prompt when an answer would not fit. Pictures are
    refused with either. A bundle without a chat template continues the text of all messages. The service reuses cached
    tokens: an answer prefills the new messages only.
    """

    bundle: "Bundle"
    service: "Service"
    options: dict[str, Any]
    system: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    keeps: bool = False
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """Parts for the pictures of the next message."""
    last: "Generation | None" = None
    """The last answer."""
    asked: list[int] = field(default_factory=list)
    """Token ids of the prompt of the last answer, or of the one in progress."""
    unread: int = 0
    """Number of the first messages that are no longer read."""
    drops_oldest: bool = False
    _request: "Request | None" = None

    @property
    def prompt(self) -> list[int]:
        """Token ids of the messages that are read. Raise PromptError as `Bundle.token_ids` does, and for what a
        template refuses."""
        messages = [*self._system_message(), *self.messages[self.unread :]]
        if self.bundle.chat_template is None or self.bundle.text is None:
            return self.bundle.token_ids("".join(message["content"] for message in messages))
        return self.bundle.chat_token_ids(messages)

    def _system_message(self) -> list[dict[str, Any]]:
        return [{"role": SYSTEM, "content": self.system}] if self.system else []

    def _fitting_prompt(self) -> list[int]:
        """Return the prompt. With `drops_oldest`, leave out the oldest messages if an answer would not fit."""
        capacity = self.bundle.manifest.max_length
        most = capacity - min(int(self.options["max_new_tokens"]), capacity // 2)
        found = self._prompt_within(most) if self.drops_oldest else self.prompt
        if found is not None:
            return found
        before = self.unread
        turns = [index for index, message in enumerate(self.messages) if message["role"] == USER]
        for self.unread in (index for index in turns if index > before):
            # some more than needed, so that the next answers read new messages only
            if (found := self._prompt_within(most * 3 // 4)) is not None:
                break
        try:
            found = self.prompt if found is None else found
        except PromptError:  # the latest message alone is too long, and will not be kept
            self.unread = before
            raise
        if self.unread > before:
            LOGGER.warning("note: the first %d messages are no longer read, so that an answer fits", self.unread)
        return found

    def _prompt_within(self, most: int) -> list[int] | None:
        """Return the prompt if it has at most so many tokens."""
        try:
            found = self.prompt
        except PromptError:
            return None
        return found if len(found) <= most else None

    def show(self, path: Path, word: str = "/image") -> int:
        """Add a picture to the next message, and return the number of its pictures. word: command or option that named
        the file. Raise PromptError for a file that is no picture, UsageError where pictures cannot be shown."""
        vision = self.bundle.vision
        if vision is None or self.bundle.chat_template is None:
            raise UsageError(
                f"{word} {path}: received a picture for a bundle that sees none, expected text",
                hint="begin the chat of a model that sees with --image FILE; a recipe needs target: {images: true}, "
                "and the model a chat template",
            )
        refuse_pictures(f"{word} {path}", keeps=self.keeps, drops_oldest=self.drops_oldest)
        (picture,) = vision.pictures([path])
        self.waiting.append({"type": "image", "image": picture, "name": str(path)})
        return len(self.waiting)

    def ask(self, text: str) -> "Iterator[OutputDelta]":
        """Yield the answer to a message as it comes. If the message cannot be answered, it is not kept."""
        shown, self.waiting = self.waiting, []
        self.messages.append({"role": USER, "content": [*shown, {"type": "text", "text": text}] if shown else text})
        try:
            yield from self._answer()
        except PromptError:
            self.messages.pop()
            raise

    def regenerate(self) -> "Iterator[OutputDelta]":
        """Yield another answer to the last message. Raise UsageError without one."""
        if self.messages and self.messages[-1]["role"] == ASSISTANT:
            self.messages.pop()
        if not self.messages:
            raise UsageError(
                "received /regenerate before any message, expected it after an answer", hint="say something"
            )
        yield from self._answer()

    def stop(self) -> bool:
        """End the answer in progress after its round; its text stays. Return whether there is one."""
        if self._request is None:
            return False
        self._request.cancel()
        return True

    def clear(self) -> None:
        """Forget all messages but the system message."""
        self.messages.clear()
        self.waiting.clear()
        self.last, self.unread = None, 0

    def save(self, path: Path) -> None:
        """Write the messages: as JSON into a file *.json, else as text with headings. Raise UsageError."""
        messages = [*self._system_message(), *self.messages]
        text = json.dumps([_named(message) for message in messages], indent=2, ensure_ascii=False)
        if path.suffix != ".json":
            text = "\n\n".join(f"## {message['role']}\n\n{_as_text(message)}" for message in messages)
        try:
            _write(path, (text + "\n").encode())
        except OSError as error:
            raise UsageError(f"/save {path}: {error.strerror}", hint="give a file that can be written") from error

    def _answer(self) -> "Iterator[OutputDelta]":
        said: list[str] = []
        self.asked = self._fitting_prompt()
        pictures = [part["image"] for each in self.messages for part in _parts(each) if part["type"] == "image"]
        options = self.options | ({"images": pictures} if pictures else {})
        self._request = request = self.service.submit(self.asked, **options)
        try:
            for delta in request:
                said.append(delta.text)
                self.last = delta.generation or self.last
                yield delta
        finally:
            self._request = None
            request.cancel()
            self.messages.append({"role": ASSISTANT, "content": "".join(said)})


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically, so that a full disk leaves the old one. Write directly to a device or a pipe."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        write_atomically(path.resolve(), content)


def refuse_pictures(where: str, *, keeps: bool, drops_oldest: bool) -> None:
    """Raise UsageError for a picture in a chat that is saved as a session, or that drops its oldest messages."""
    if keeps:
        raise UsageError(
            f"{where}: received a picture in a chat with --session, expected text: sessions do not save pictures",
            hint="leave --session out",
        )
    if drops_oldest:
        raise UsageError(
            f"{where}: received a picture in a chat with --truncate, expected text: messages with pictures are not "
            "dropped",
            hint="leave --truncate out",
        )


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a message, [] if its content is a string."""
    content = message["content"]
    return content if isinstance(content, list) else []


def _named(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the files' names in place of pictures."""
    shown = [{"type": "image", "image": part["name"]} if "name" in part else part for part in _parts(message)]
    return {**message, "content": shown} if shown else message


def _as_text(message: dict[str, Any]) -> str:
    """Return the text of a message, with a line for each picture."""
    lines = [f"[{part['name']}]" if "name" in part else part["text"] for part in _parts(message)]
    return "\n".join(lines) or message["content"]
