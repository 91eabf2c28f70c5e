"""Pictures in the messages of a request: parts of type image_url with data: URLs. Nothing is fetched."""

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from speccompile.errors import OverloadedError, PromptError
from speccompile.runtime.images.conversations import split_images
from speccompile.serving.http.errors import RequestError

if TYPE_CHECKING:
    from speccompile.runtime.images.reader import ImageReader

PART = "image_url"
MOST_BODY_BYTES = 48 * 2**20
"""Bytes of a request with pictures: room for one of `MAX_BYTES` as base64, with its text."""

MOST_PIXEL_BYTES = 512 * 2**20
"""Bytes of the decoded pictures of a request in the runtime in C++; here `--read-memory` bounds them."""
MOST_HELD_BYTES = 2 * 2**30
"""Bytes of the decoded pictures of all requests, until they are encoded."""


class HeldPictures:
    """Counts the bytes of pictures while something refers to them. Safe for several threads."""

    def __init__(self, most: int = MOST_HELD_BYTES) -> None:
        self._bytes, self._most, self._lock = 0, most, threading.Lock()

    def take(self, pictures: Sequence[Any]) -> None:
        """Count the pictures of a request. Raise OverloadedError where those of all requests are too many."""
        sizes = [each.image.nbytes for each in pictures]
        with self._lock:
            if (size := self._bytes + sum(sizes)) > self._most:
                raise OverloadedError(
                    f"the pictures of all requests have {size} bytes of pixels, expected at most {self._most}",
                    retry_after=1.0,
                )
            self._bytes = size
        for picture, size in zip(pictures, sizes, strict=True):
            weakref.finalize(picture, self._drop, size)

    def _drop(self, size: int) -> None:
        with self._lock:
            self._bytes -= size


class ShownMessages(NamedTuple):
    """Messages with pictures. rest: the body without its pictures; messages: with a part for each picture, as templates
    know them; images: the pictures' files, bytes or `LowDetail`; pictures: what the bundle's reader makes of them, once
    they are read."""

    rest: dict[str, Any]
    messages: list[dict[str, Any]]
    images: list[Any]
    pictures: Sequence[Any] = ()


def read_pictures(shown: ShownMessages, vision: "ImageReader") -> ShownMessages:
    """Return messages whose pictures are decoded, and hashed for good. Raise RequestError for one that cannot be."""
    try:
        return shown._replace(pictures=vision.pictures(shown.images))
    except PromptError as error:
        raise RequestError(str(error), param="messages", hint=error.hint) from error


def shown_messages(body: Any, vision: "ImageReader | None") -> ShownMessages | None:
    """Return the messages of a body with pictures; None of a body without. Raise RequestError for a picture that is not
    taken; the rest of the body is checked later."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if vision is None or not isinstance(messages, list) or not any(_pictures(message) for message in messages):
        return None
    for name in ("continue_final_message", "truncate_prompt_tokens"):
        if (value := body.get(name)) is not None and value is not False:
            raise RequestError(
                f"{name}: received {value!r} beside pictures, no part of which can be dropped or continued", param=name,
                code="unsupported_parameter", hint="leave it out",
            )  # fmt: skip
    rest = [
        {**message, "content": [each for each in message["content"] if not _is_picture(each)]}
        if _pictures(message)
        else message
        for message in messages
    ]
    try:
        plain, sources = split_images(messages)
    except PromptError as error:
        raise RequestError(str(error), param="messages", hint=error.hint) from error
    return ShownMessages({**body, "messages": rest}, plain, sources)


def _pictures(message: Any) -> list[tuple[int, dict[str, Any]]]:
    content = message.get("content") if isinstance(message, dict) else None
    return [(i, each) for i, each in enumerate(content if isinstance(content, list) else ()) if _is_picture(each)]


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == PART
