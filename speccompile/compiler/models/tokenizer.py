"""The tokenizer as transformers would use it, in the one file that the runtime reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from speccompile.bundle.manifest import CHAT, DEFAULT_TEMPLATE, TOKENIZER, TOOL_TEMPLATE, canonical_json
from speccompile.compiler.checkpoints.json_files import read_json_object
from speccompile.compiler.models.load import first_line
from speccompile.errors import CheckpointError
from speccompile.progress import LOGGER

LEFT_BEHIND = (
    "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model",
)  # fmt: skip
"""Files of a tokenizer besides tokenizer.json that a folder may hold."""

_UNREADABLE = (
    AttributeError, ImportError, KeyError, OSError, RecursionError, StrictDataclassError, TypeError, ValueError,
)  # fmt: skip
"""Errors by which transformers refuses a tokenizer's files."""
_SHOWN = 80
"""Maximum number of characters of a template in a message."""
_TOLD = 5
"""Tokens that one message names."""


def warn_without_tokenizer(folder: Path) -> None:
    """Log that a bundle takes no text, if the folder has parts of a tokenizer."""
    found = [name for name in LEFT_BEHIND if (folder / name).is_file()]
    if found:
        LOGGER.warning(
            "%s: found %s, but no tokenizer.json: the bundle will have no tokenizer, and take token ids alone\n"
            "hint: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes tokenizer.json",
            folder, " and ".join(found),
        )  # fmt: skip


def write_tokenizer(folder: Path, output: Path) -> None:
    """Write tokenizer/tokenizer.json, and tokenizer/chat.json when there is a chat template, into the bundle `output`.

    Goes through transformers, because tokenizer_config.json may change what tokenizer.json says (add_bos_token, ..).
    Raises CheckpointError when it cannot be loaded.
    """
    try:
        # Checked first, because behind AutoTokenizer the library refuses a file with a bare Exception.
        Tokenizer.from_buffer((folder / "tokenizer.json").read_bytes())
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        backend = tokenizer.backend_tokenizer
    except _UNREADABLE as error:
        raise CheckpointError(
            f"{folder}: the tokenizer cannot be loaded: {first_line(error)}",
            hint="check tokenizer.json and tokenizer_config.json, or remove them to build without a tokenizer",
        ) from error
    _tell_other_ids(folder, backend)
    path = output / TOKENIZER
    path.parent.mkdir(parents=True, exist_ok=True)
    backend.no_padding()
    backend.no_truncation()
    # `save` raises a bare Exception on a full disk.
    path.write_text(backend.to_str(pretty=True), encoding="utf-8")
    if template := _checked_template(folder, tokenizer.chat_template):
        names = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        key = "template" if isinstance(template, str) else "templates"
        (output / CHAT).write_bytes(canonical_json({key: template, "special_tokens": names}))
    if isinstance(template, dict) and template:
        _tell_templates(folder, template)


def _tell_other_ids(folder: Path, backend: Tokenizer) -> None:
    """Log which added tokens have other ids than tokenizer.json says: where its ids have a hole, the library gives the
    next free ones, and the model's rows for these tokens are others."""
    written = read_json_object(folder / "tokenizer.json") or {}
    pairs = ((each["content"], each["id"]) for each in written.get("added_tokens") or ())
    moved = [(name, index, backend.token_to_id(name)) for name, index in pairs if backend.token_to_id(name) != index]
    if moved:
        LOGGER.warning(
            "%s: tokenizer.json names the ids %s, and the tokenizers library gives them %s, as in transformers\n"
            "hint: fill the holes in its ids with tokens that no text has, if the model was trained with those",
            folder, ", ".join(f"{name!r} {index}" for name, index, _ in moved[:_TOLD]),
            ", ".join(str(found) for _, _, found in moved[:_TOLD]),
        )  # fmt: skip


def _checked_template(folder: Path, template: Any) -> str | dict[str, str] | None:
    """Return the chat template, or named ones, that transformers has read. Raise CheckpointError for no text."""
    texts = list(template.values()) if isinstance(template, dict) else [template or ""]
    for each in texts:
        if not isinstance(each, str) or not _is_unicode(each):
            raise CheckpointError(
                f"{folder}: chat_template: received {repr(each)[:_SHOWN]}, expected a text, or texts by their names",
                hint="correct it in tokenizer_config.json or chat_template.jinja, or leave it out",
            )
    return template or None


def _is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _tell_templates(folder: Path, templates: Mapping[str, str]) -> None:
    """Log which named chat templates were taken, and what for."""
    uses = {DEFAULT_TEMPLATE: "conversations", TOOL_TEMPLATE: "conversations with tools"}
    taken = [f"{name} ({uses[name]})" if name in uses else f"{name} (by its name)" for name in sorted(templates)]
    LOGGER.info("%s: took its chat templates %s", folder, ", ".join(taken))
    if DEFAULT_TEMPLATE not in templates:
        LOGGER.warning(
            "%s: none of its chat templates is named %s: a conversation has to name one\n"
            "hint: name one of them so in the tokenizer's folder", folder, DEFAULT_TEMPLATE,
        )  # fmt: skip
