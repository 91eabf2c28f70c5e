"""Replace the tokenizer in a GGUF file, whose split of text into words is unknown, by the original model's."""

from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.metadata import Metadata
from speccompile.compiler.checkpoints.gguf.tokenizer import NORMAL
from speccompile.compiler.checkpoints.json_files import read_json_object
from speccompile.errors import CheckpointError

TOKENIZER = "tokenizer.json"
FILES = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def given_tokenizer_files(folder: Path) -> tuple[Path, ...]:
    """Return the tokenizer's files in a folder. Raise CheckpointError without a tokenizer.json."""
    found = tuple(folder / name for name in FILES if (folder / name).is_file())
    if folder / TOKENIZER not in found:
        received = "no folder" if not folder.is_dir() else f"a folder without {TOKENIZER}"
        raise CheckpointError(
            f"{folder}: received {received}, expected the folder of the tokenizer of a GGUF file's model",
            hint="save it there: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)",
        )
    return found


def take_tokenizer(metadata: Metadata, folder: Path) -> dict[str, str]:
    """Return file name -> text of a tokenizer's files in a folder, and mark all keys of the file's own tokenizer. Raise
    CheckpointError for a tokenizer with other tokens than the file's."""
    found = {file.name: file.read_text(encoding="utf-8") for file in given_tokenizer_files(folder)}
    tokens = metadata.items("tokenizer.ggml.tokens", str) or []
    types = metadata.items("tokenizer.ggml.token_type", int) or [NORMAL] * len(tokens)
    given = _tokens(folder / TOKENIZER)
    for index, (token, kind) in enumerate(zip(tokens, types, strict=False)):
        if kind == NORMAL and given.get(index, token) != token:
            raise CheckpointError(
                f"{folder / TOKENIZER}: received {given[index]!r} as token {index}, expected {token!r}, as in "
                f"{metadata.path.name}",
                hint="give the tokenizer of the model that the GGUF file was made from",
            )
    metadata.claim_tokenizer()
    return found


def _tokens(path: Path) -> dict[int, str]:
    """Return id -> token of a tokenizer.json's model."""
    model: Any = (read_json_object(path) or {}).get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        return {index: token for token, index in vocab.items() if isinstance(index, int)}
    if isinstance(vocab, list):
        return {index: str(each[0]) for index, each in enumerate(vocab) if isinstance(each, list) and each}
    raise CheckpointError(
        f"{path}: received no model.vocab, expected a tokenizer.json",
        hint="save it again: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)",
    )
