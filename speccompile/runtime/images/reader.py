"""Prompts with pictures of an open bundle."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.errors import BundleError, PromptError, UsageError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.decode import is_pillow, read_picture
from speccompile.runtime.images.encoder import Encoder, LowDetail, Picture, Run
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.limits import ENCODER_BYTES, MAX_IMAGES
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.images.prompts import with_pictures
from speccompile.runtime.text.tokenizer import Tokenizer

_ONE = (str, bytes, bytearray, memoryview, np.ndarray)


class SeenPrompt(NamedTuple):
    """A prompt's tokens, and its pictures, None without."""

    ids: list[int]
    media: SequenceMedia | None


def image_settings(manifest: Manifest) -> ImageSettings | None:
    """Return what a manifest says about pictures; None of a bundle that sees none. Raise BundleError."""
    written = manifest.plan.get("images")
    takes = any(tensor.name == "media" for graph in manifest.graphs for tensor in graph.inputs)
    try:
        settings = None if written is None else ImageSettings.from_json(written)
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"plan.images: {error!r}", hint="build the bundle again with this speccompile") from error
    if takes != (settings is not None) or (settings is not None and settings.family not in FAMILIES):
        received = "none" if settings is None else settings.family
        raise BundleError(
            f"plan.images: received {received!r}, expected one of {', '.join(FAMILIES)} of a bundle whose graphs have "
            "the input 'media', and none of another",
            hint="build the bundle again with this speccompile",
        )
    return settings


class ImageReader:
    """Reads prompts with pictures, and texts in which placeholders are text."""

    def __init__(
        self, settings: ImageSettings, open_run: Callable[[], Run], text: Tokenizer | None, limit: int = ENCODER_BYTES
    ) -> None:
        """limit: bytes of encoder rows that are kept."""
        self.settings, self._text = settings, text
        try:
            self._family = FAMILIES[settings.family](settings)
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"plan.images.settings: {error!r}", hint="build the bundle again with this speccompile"
            ) from error
        self.encoder = Encoder(self._family, open_run, limit)

    def pictures(self, sources: Sequence[Any]) -> list[Picture]:
        """Return the pictures of one prompt. Raise PromptError."""
        if len(sources) > MAX_IMAGES:
            raise PromptError(f"received {len(sources)} pictures, expected at most {MAX_IMAGES}", hint="give fewer")
        return [self._picture(each, f"images[{index}]") for index, each in enumerate(sources)]

    def _picture(self, source: Any, where: str) -> Picture:
        if isinstance(source, Picture):
            return source
        is_low = isinstance(source, LowDetail)
        pixels = read_picture(source.source if isinstance(source, LowDetail) else source, where)
        return Picture.of(pixels, self._family, is_low=is_low)

    def prompt(
        self, text: str, pictures: Sequence[Picture], *, special_tokens: bool = True, mark: str = ""
    ) -> SeenPrompt:
        """Return a text with pictures at its placeholders. mark: a character inside placeholders that are none. Raise
        PromptError."""
        assert self._text is not None, "the caller has checked for a tokenizer"
        assert self.settings.token is not None, "a bundle with a tokenizer has the placeholder's text"
        texts = [self._family.text(picture.grid) for picture in pictures]
        whole = with_pictures(text, self.settings.token, texts, self._family.alone)
        ids = self._text.encode_parts(whole.split(mark) if mark else [whole], special_tokens)
        return self.of_ids(ids, pictures)

    def of_ids(self, ids: list[int], pictures: Sequence[Picture]) -> SeenPrompt:
        """Return a prompt of token ids that has the placeholder for every row. Raise PromptError."""
        return SeenPrompt(ids, SequenceMedia(pictures, ids, self.encoder) if pictures else None)


def images_per_prompt(value: Any, prompts: int) -> list[list[Any]]:
    """Return the pictures of each prompt. value: None, a picture or a list of them for one prompt, a list of lists for
    several. Raise UsageError."""
    if value is None:
        return [[] for _ in range(prompts)]
    if isinstance(value, (*_ONE, LowDetail)) or hasattr(value, "__fspath__") or is_pillow(value):
        value = [value]
    if not isinstance(value, list | tuple):
        raise UsageError(
            f"images: received {type(value).__name__}, expected a list of paths, bytes, arrays or pictures of Pillow",
            hint="write images=[picture]",
        )
    if prompts == 1 and not any(isinstance(each, list | tuple) for each in value):
        return [list(value)]
    if len(value) != prompts or not all(each is None or isinstance(each, list | tuple) for each in value):
        raise UsageError(
            f"images: received {len(value)} values for {prompts} prompts, expected a list of pictures for each prompt",
            hint="write images=[[picture], []] for a picture in the first of two prompts",
        )
    return [list(each or ()) for each in value]


def check_truncation(truncate: str | None, images: Sequence[Sequence[Any]]) -> None:
    """Raise UsageError where a prompt with pictures may lose its first tokens."""
    if truncate is not None and any(images):
        raise UsageError(
            f"truncate: received {truncate!r} for a prompt with pictures, expected none: no part of one can be dropped",
            hint="leave truncate out, and shorten the prompt",
        )


def check_session_images(session: object, images: Sequence[Sequence[Any]]) -> None:
    """Raise UsageError for a session file of a prompt with pictures."""
    if session is not None and any(images):
        raise UsageError(
            f"session {session}: received pictures, expected a prompt of text: pictures are not saved in sessions",
            hint="leave session out",
        )
