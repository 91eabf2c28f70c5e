"""Prompts of a bundle, with pictures or without."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.bundle.reader import OpenedBundle
from speccompile.errors import PromptError, UsageError
from speccompile.machine.system import available_cores
from speccompile.runtime.images.conversations import read_conversation
from speccompile.runtime.images.encoder import ENCODER_FILE, open_encoder, open_tensorrt_encoder
from speccompile.runtime.images.limits import IMAGE_CACHE
from speccompile.runtime.images.prompts import marked, unused_mark
from speccompile.runtime.images.reader import ImageReader, SeenPrompt, image_settings, images_per_prompt
from speccompile.runtime.text.prompts import (
    WITHOUT_CHAT,
    ChatTemplate,
    Prompt,
    conversation_token_ids,
    prompt_token_ids,
    templated,
)
from speccompile.runtime.text.tokenizer import Tokenizer


def open_reader(
    opened: OpenedBundle, entry: EngineEntry, threads: int | None, text: Tokenizer | None, cache: int | None
) -> ImageReader | None:
    """Return the reader of a bundle's pictures, whose encoder is the engine's own if it has one; None if it sees none.
    cache: MiB of rows that are kept, None for the default. Raise BundleError, and UsageError for a cache of what is
    not seen."""
    settings = image_settings(opened.manifest)
    if settings is None:
        if cache is not None:
            raise UsageError(
                f"image_cache: received {cache} for a bundle that sees no pictures, expected none",
                hint="leave it out",
            )
        return None
    limit = (IMAGE_CACHE if cache is None else cache) << 20
    if ENCODE_IMAGE in entry.files:
        return ImageReader(settings, partial(open_tensorrt_encoder, opened.folder, entry, settings), text, limit)
    opened.path(ENCODER_FILE)
    return ImageReader(settings, partial(open_encoder, opened.folder, threads or available_cores()), text, limit)


def read_prompt(
    prompt: Prompt | None, images: Sequence[Any], vision: ImageReader | None, text: Tokenizer | None,
    template: ChatTemplate | None, *, chat: bool,
) -> SeenPrompt:  # fmt: skip
    """Return a prompt's tokens and pictures. Raise PromptError for what the bundle cannot take."""
    if vision is None:
        if images:
            raise PromptError(
                "received pictures for a bundle that sees none, expected a prompt of text",
                hint="build the recipe with target: {images: true}, of a target that sees pictures",
            )
        return SeenPrompt(prompt_token_ids(prompt, text, template, chat=chat), None)
    pictures = vision.pictures(images)
    if not isinstance(prompt, str) or text is None:
        return vision.of_ids(prompt_token_ids(prompt, text, template, chat=chat), pictures)
    if chat:
        return _as_message(prompt, pictures, vision, template)
    return vision.prompt(prompt, pictures) if pictures else SeenPrompt(prompt_token_ids(prompt, text, template), None)


def read_messages(
    messages: object, images: Any, vision: ImageReader | None, text: Tokenizer | None, template: ChatTemplate | None,
    variables: Mapping[str, Any] | None,
) -> tuple[list[int], Any]:  # fmt: skip
    """Return the tokens of a conversation, and what the option `images` of their generation is. Raise PromptError for
    what the bundle cannot take."""
    if vision is None or text is None:
        return conversation_token_ids(messages, text, template, variables), images
    seen, pictures = read_conversation(messages, images_per_prompt(images, 1)[0], vision, template, variables)
    return seen.ids, pictures or None


def _as_message(prompt: str, pictures: Sequence[Any], vision: ImageReader, template: ChatTemplate | None) -> SeenPrompt:
    """Return a user's only message, its pictures before its text, in the chat template."""
    mark = unused_mark(prompt)
    own = marked(prompt, vision.settings.placeholders, mark)
    parts: Any = own if not pictures else [*({"type": "image"} for _ in pictures), {"type": "text", "text": own}]
    written = templated([{"role": "user", "content": parts}], template, instead=WITHOUT_CHAT)
    return vision.prompt(written, pictures, special_tokens=False, mark=mark)
