"""Conversations with pictures: parts of messages in OpenAI's form, and in that of chat templates.

A part is {"type": "image"}, whose picture is the next one of `images`, or brings its own: {"type": "image", "image":
bytes, an array or a pathlib.Path}, or {"type": "image_url", "image_url": {"url": "data:image/png;base64,.."}}.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from speccompile.errors import PromptError
from speccompile.runtime.images.data_urls import data_url
from speccompile.runtime.images.encoder import LowDetail, Picture
from speccompile.runtime.images.prompts import marked, unused_mark
from speccompile.runtime.images.reader import ImageReader, SeenPrompt
from speccompile.runtime.text.messages import plain_messages
from speccompile.runtime.text.prompts import ChatTemplate, templated

IMAGE_PARTS = ("image", "image_url")
DETAILS = ("auto", "high", "low")
"""Values of `detail` of an image_url: the target's own tiles and size twice, and fewer of them."""


def read_conversation(
    messages: object, images: Sequence[Any], vision: ImageReader, template: ChatTemplate | None,
    variables: Mapping[str, Any] | None = None,
) -> tuple[SeenPrompt, list[Picture]]:  # fmt: skip
    """Return the tokens of a conversation in the chat template, and its pictures. images: those of parts without their
    own. Raise PromptError."""
    plain, sources = split_images(messages)
    waiting = iter(images)
    chosen = [next(waiting, None) if source is None else source for source in sources]
    left = len(list(waiting))
    if left or any(each is None for each in chosen):
        received, expected = len(images), sum(source is None for source in sources)
        raise PromptError(
            f"messages: received as pictures {received}, expected {expected}, one for each part of type image without "
            "its own",
            hint='write {"type": "image"} in a message\'s content where each picture belongs',
        )
    pictures = vision.pictures(chosen)
    own, mark = mark_placeholders([plain, dict(variables or {})], vision.settings.placeholders)
    written = templated(own[0], template, own[1])
    return vision.prompt(written, pictures, special_tokens=False, mark=mark), pictures


def mark_placeholders(given: list[Any], tokens: Sequence[str]) -> tuple[list[Any], str]:
    """Return what a chat template gets, messages and variables, with a mark inside each placeholder that somebody has
    written, and the mark."""
    mark = unused_mark(*_strings(given))
    return _mapped(given, lambda text: marked(text, tokens, mark)), mark


def split_images(messages: object) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return messages as templates know them, with parts {"type": "image"} for pictures, and the source of each, None
    for a part without its own. Raise PromptError."""
    if not isinstance(messages, list | tuple):
        return plain_messages(messages), []
    contents = [message.get("content") if isinstance(message, Mapping) else None for message in messages]
    shown = [isinstance(each, list | tuple) and any(map(_is_image, each)) for each in contents]
    rest = [
        {**message, "content": [part for part in content or () if not _is_image(part)]} if is_shown else message
        for message, content, is_shown in zip(messages, contents, shown, strict=True)
    ]
    plain, sources = plain_messages(rest), list[Any]()
    for index, (message, content, is_shown) in enumerate(zip(plain, contents, shown, strict=True)):
        if is_shown and content is not None:
            where = f"messages[{index}].content"
            message["content"] = [_part(part, sources, f"{where}[{number}]") for number, part in enumerate(content)]
    return plain, sources


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS


def _part(part: Mapping[str, Any], sources: list[Any], where: str) -> dict[str, Any]:
    """Return a part as templates know it, and note the source of a picture."""
    if not _is_image(part):
        return {"type": "text", "text": part["text"]}
    if part["type"] == "image_url":
        given = part.get("image_url")
        url, detail = (given.get("url"), given.get("detail")) if isinstance(given, Mapping) else (given, None)
        picture = data_url(url, where)
        sources.append(LowDetail(picture) if _is_low(detail, where) else picture)
    else:
        sources.append(_own(part.get("image"), where))
    return {"type": "image"}


def _is_low(detail: Any, where: str) -> bool:
    if detail is not None and detail not in DETAILS:
        raise PromptError(
            f"{where}.image_url.detail: received {detail!r}, expected {', '.join(DETAILS[:-1])} or {DETAILS[-1]}",
            hint="leave it out",
        )
    return bool(detail == DETAILS[-1])


def _own(image: Any, where: str) -> Any:
    """Return a part's own picture. Raise PromptError for a text: messages may come from the network, and would name any
    file of this machine."""
    if isinstance(image, str):
        raise PromptError(
            f"{where}: received the text {image[:40]!r} as a picture, expected bytes, an array or a pathlib.Path",
            hint="write pathlib.Path(NAME) in messages of your own, or give the file by images=[NAME]",
        )
    return image


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with each of its texts changed, keys included: templates write those of tools."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
        case list() | tuple():
            return [_mapped(each, change) for each in value]
    return value


def _strings(value: Any) -> Iterator[str]:
    found: list[str] = []
    _mapped(value, lambda text: found.append(text) or text)  # type: ignore[func-returns-value]
    yield from found
