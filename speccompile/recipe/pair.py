"""Whether a drafter's tokens are its target's: a drafter that counts tokens otherwise would draft nonsense."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.checkpoints.objects import CONFIG, read_object
from speccompile.errors import CheckpointError
from speccompile.recipe.checkpoint import (
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    TOKENIZER_CONFIG,
    token_ids,
)
from speccompile.recipe.plan import ModelPlan
from speccompile.recipe.refusal import Origin

SPECIAL_TOKENS = ("bos", "eos", "pad")
HINT = "choose a drafter that was trained with the target's tokenizer"


def check_pair(target: ModelPlan, drafter: ModelPlan, key: str, origin: Origin) -> tuple[str, ...]:
    """Compare vocabulary sizes, tokenizers token by token, and special tokens. `key`: where the drafter stands.

    Returns notes on what could not be compared, or differs without harm. Raises RecipeError for a pair that cannot
    work and CheckpointError for a tokenizer that cannot be read.
    """
    sizes = [model.facts.vocabulary_size for model in (target, drafter)]
    if sizes[0] != sizes[1]:
        raise origin.refusal(
            key, f"a drafter with a vocabulary of {sizes[1]} tokens", f"the target's vocabulary of {sizes[0]}", HINT
        )
    return (
        *_check_tokenizers(target, drafter, key, origin),
        *_check_special_tokens(target, drafter, key, origin),
    )


def _check_tokenizers(target: ModelPlan, drafter: ModelPlan, key: str, origin: Origin) -> tuple[str, ...]:
    without = [name for name, model in (("target", target), ("drafter", drafter)) if not model.facts.tokenizer]
    if without:
        return (f"no {TOKENIZER} in {' and '.join(without)}: only the sizes of the vocabularies were compared",)
    files = [model.folder / TOKENIZER for model in (target, drafter)]
    if files[0].read_bytes() == files[1].read_bytes():
        return ()
    ours, theirs = map(read_vocabulary, files)
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            raise origin.refusal(
                key,
                f"a drafter whose tokenizer has {_shown(theirs, token_id)} as token {token_id}",
                f"the target's {_shown(ours, token_id)}",
                HINT,
            )
    return ()


def read_vocabulary(path: Path) -> dict[int, str]:
    """Token id -> token of a tokenizer.json, added tokens included. Raises CheckpointError.

    Read as JSON: the tokenizers library would give the same, but raises bare Exception for files that it cannot read.
    """
    data = read_object(path) or {}
    try:
        vocabulary = data["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: (token, score) in the order of the ids
            tokens = {token_id: str(piece[0]) for token_id, piece in enumerate(vocabulary)}
        else:
            tokens = {int(token_id): str(token) for token, token_id in vocabulary.items()}
        return tokens | {int(added["id"]): str(added["content"]) for added in data.get("added_tokens") or ()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{path}: received no vocabulary in model.vocab, expected the file of a `tokenizers` tokenizer",
            hint="save the tokenizer again with transformers: tokenizer.save_pretrained(FOLDER)",
        ) from None


def _shown(vocabulary: Mapping[int, str], token_id: int) -> str:
    return repr(vocabulary[token_id]) if token_id in vocabulary else "nothing"


def _check_special_tokens(target: ModelPlan, drafter: ModelPlan, key: str, origin: Origin) -> tuple[str, ...]:
    """A special token must agree where both models name it: by id, or by text where one of them gives no id.

    Ids agree when one is shared: instruction-tuned models add ends to those of their base model.
    """
    notes = []
    for name in SPECIAL_TOKENS:
        ours, theirs = _ids(target, name), _ids(drafter, name)
        if not (ours and theirs):
            ours, theirs = _texts(target, name), _texts(drafter, name)
        if ours and theirs and not ours & theirs:
            received, expected = (", ".join(map(repr, sorted(side))) for side in (theirs, ours))
            raise origin.refusal(key, f"a drafter with {name} token {received}", f"the target's {expected}", HINT)
        if name == "eos" and ours and theirs and ours != theirs:
            notes.append(f"end-of-sequence tokens: target {sorted(ours)}, drafter {sorted(theirs)}; the target's count")
    return tuple(notes)


def _ids(model: ModelPlan, name: str) -> set[Any]:
    if name == "eos":
        return set(model.facts.eos_token_ids)
    path = model.folder / CONFIG
    return set(token_ids((read_object(path) or {}).get(f"{name}_token_id"), f"{name}_token_id", path))


def _texts(model: ModelPlan, name: str) -> set[Any]:
    for file in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP):
        match (read_object(model.folder / file) or {}).get(f"{name}_token"):
            case str(text) | {"content": str(text)}:
                return {text}
    return set()
