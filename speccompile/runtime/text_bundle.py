"""Tokenizer, chat template and grammars of a bundle, without an engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from speccompile.bundle import manifest as names
from speccompile.bundle.manifest import Manifest
from speccompile.bundle.reader import OpenedBundle, open_bundle
from speccompile.runtime.constraints import Constraint, GrammarCompiler
from speccompile.runtime.images.encoder import Run
from speccompile.runtime.images.reader import ImageReader, image_settings
from speccompile.runtime.text.chat import read_chat
from speccompile.runtime.text.prompts import ChatTemplate
from speccompile.runtime.text.tokenizer import Tokenizer


class Texts(Protocol):
    """Interface of a bundle to readers of requests: `Bundle` and `TextBundle` have it."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def text(self) -> Tokenizer | None: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    @property
    def vision(self) -> ImageReader | None: ...

    @property
    def grammars(self) -> GrammarCompiler: ...

    def constraint(self, kind: str, text: Any = "") -> Constraint:
        """Compile a constraint: see `GrammarCompiler.constraint`."""
        ...


@dataclass(frozen=True)
class TextBundle:
    """Tokenizer, chat template and grammars of a bundle; the first two are None if it has none."""

    manifest: Manifest
    text: Tokenizer | None
    chat_template: ChatTemplate | None
    grammars: GrammarCompiler
    vision: ImageReader | None = None
    """Reader of prompts with pictures, which encodes none; None if the bundle sees none."""

    def constraint(self, kind: str, text: Any = "") -> Constraint:
        """Compile a constraint: see `GrammarCompiler.constraint`."""
        return self.grammars.constraint(kind, text)

    @classmethod
    def of(cls, opened: OpenedBundle) -> "TextBundle":
        """Read the texts of an opened bundle. Raise BundleError for an invalid file."""
        path = opened.path(names.TOKENIZER) if opened.manifest.tokenizer else None
        hashed = "" if path is None else opened.hashes.files[names.TOKENIZER].blake3
        chat = read_chat(opened.path(names.CHAT)) if names.CHAT in opened.hashes.files else None
        settings = image_settings(opened.manifest)
        text = None if path is None else Tokenizer(path, () if settings is None else settings.placeholders)
        vision = None if settings is None else ImageReader(settings, _no_encoder, text)
        return cls(opened.manifest, text, chat, GrammarCompiler(opened.manifest, path, hashed), vision)

    @classmethod
    def open(cls, folder: Path) -> "TextBundle":
        """Read the texts of a bundle folder whose hashes have been verified. Raise BundleError."""
        return cls.of(open_bundle(folder, verify=False))


def _no_encoder() -> Run:
    raise AssertionError("texts are read without an engine")
