"""Check that a drafter's token ids are its target's: with other ids it would draft nonsense.

A model may have more embedding rows than its tokenizer has tokens: padding, to a size that suits the hardware. So one
tokenizer may belong to models with different vocabularies (Qwen2.5: 152064 rows at 7B, 151936 at 0.5B). Such a pair
drafts among the rows that both have.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.facts import (
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    TOKENIZER_CONFIG,
    special_ids,
)
from speccompile.compiler.checkpoints.json_files import read_json_object
from speccompile.drafters.token_map import MAP
from speccompile.errors import CheckpointError
from speccompile.machine.system import collection_paused
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.tokenizers import KEY, describe_overlap

SPECIAL_TOKENS = {
    "bos": "first tokens: target {}, drafter {}; prompts begin with the target's",
    "eos": "end-of-sequence tokens: target {}, drafter {}; the target's count",
}
"""Special tokens that a pair may differ in, with the note that tells it. Pad plays no part: nothing pads with it."""
HINT = "choose a drafter that was trained with the target's tokenizer"
MAPPED = f"set {KEY}: {MAP} to draft among the common tokens, or "
NOT_COMPARED = f"{HINT}; where both have one tokenizer, put its {TOKENIZER} beside both models, and these may differ"
NO_TOKENIZER = f"{HINT}; where the sizes differ in padding alone, put its {TOKENIZER} beside both models"


def check_vocabulary_match(
    target: ModelPlan, drafter: ModelPlan, key: str, origin: RecipeSource, *, maps: bool = False
) -> tuple[str, ...]:
    """Compare vocabulary sizes, tokenizers token by token, and special tokens. key: of the drafter in the recipe. maps:
    drafts of another tokenizer can be mapped, which a refusal then says.

    Return notes on missing information and harmless differences. Raise RecipeError for an incompatible pair and
    CheckpointError for an unreadable tokenizer.
    """
    return (
        *_check_vocabularies(target, drafter, key, origin, maps=maps),
        *_check_special_tokens(target, drafter, key, origin),
    )


def _check_vocabularies(
    target: ModelPlan, drafter: ModelPlan, key: str, origin: RecipeSource, *, maps: bool
) -> tuple[str, ...]:
    """Raise RecipeError unless both tokenizers have the same token at every id, added tokens included. Return notes."""
    ours, theirs = target.facts.vocabulary_size, drafter.facts.vocabulary_size
    without = [name for name, model in (("target", target), ("drafter", drafter)) if not model.facts.tokenizer]
    if without and ours != theirs:
        raise origin.refusal(
            key, f"a drafter with a vocabulary of {theirs} tokens", f"the target's vocabulary of {ours}", NO_TOKENIZER
        )
    if without:
        return (f"no {TOKENIZER} in {' and '.join(without)}: only the sizes of the vocabularies were compared",)
    files = [model.folder / TOKENIZER for model in (target, drafter)]
    is_same = files[0].read_bytes() == files[1].read_bytes()
    if is_same and ours == theirs:
        return ()
    tokens = _read_tokens(files[0])
    if not is_same:
        _check_equal(target, drafter, tokens.all(), key, origin, maps=maps)
    return () if ours == theirs else _check_padding(tokens, ours, theirs, key, origin)


def _check_equal(
    target: ModelPlan, drafter: ModelPlan, ours: Mapping[int, str], key: str, origin: RecipeSource, *, maps: bool
) -> None:
    """Raise RecipeError, with the number of common tokens, unless the drafter has the target's tokens `ours`."""
    theirs = read_vocabulary(drafter.folder / TOKENIZER)
    if ours == theirs:
        return
    differs = (each for each in ours.keys() | theirs.keys() if ours.get(each) != theirs.get(each))
    token_id = min(differs)
    overlap, can_map = describe_overlap(target, drafter)
    received = f"a drafter whose tokenizer has {_shown(theirs, token_id)} as token {token_id}"
    hint = f"{overlap}; {MAPPED if maps and can_map else ''}{HINT}"
    raise origin.refusal(key, received, f"the target's {_shown(ours, token_id)}", hint)


class _Tokens(NamedTuple):
    """Id -> token: tokens of the tokenizer's model, and added tokens. A token may be in both."""

    model: dict[int, str]
    added: dict[int, str]

    def all(self) -> dict[int, str]:
        return self.model | self.added


def _check_padding(tokens: _Tokens, ours: int, theirs: int, key: str, origin: RecipeSource) -> tuple[str, ...]:
    """Raise RecipeError unless both models have rows for all tokens except added ones. A model cannot predict a token
    without a row. Return notes."""
    common, needed = min(ours, theirs), max(tokens.model.keys() - tokens.added.keys(), default=-1) + 1
    if needed > common:
        expected = f"the target's vocabulary of {ours}, or both with rows for the {needed} tokens of their tokenizer"
        raise origin.refusal(key, f"a drafter with a vocabulary of {theirs} tokens", expected, HINT)
    notes = [f"vocabularies of {ours} rows in the target and {theirs} in the drafter: drafts are tokens below {common}"]
    if (last := max(tokens.added, default=0)) >= common:
        notes.append(f"the added token {tokens.added[last]!r} ({last}) lies behind these rows and is never drafted")
    return tuple(notes)


def read_vocabulary(path: Path) -> dict[int, str]:
    """Return token id -> token of a tokenizer.json, added tokens included. Raise CheckpointError."""
    return _read_tokens(path).all()


def _read_tokens(path: Path) -> _Tokens:
    """Read the tokens of a tokenizer.json. Raise CheckpointError.

    The file is read as JSON, because the tokenizers library raises bare Exception for files that it cannot read.
    """
    with collection_paused():  # JSON has no cycles, and a collection takes longer than reading a million merges
        data = read_json_object(path) or {}
    try:
        vocabulary = data["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: (token, score) in the order of the ids
            tokens = {token_id: str(piece[0]) for token_id, piece in enumerate(vocabulary)}
        else:
            tokens = {int(token_id): str(token) for token, token_id in vocabulary.items()}
        added = {int(each["id"]): str(each["content"]) for each in data.get("added_tokens") or ()}
        return _Tokens(tokens, added)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{path}: received no vocabulary in model.vocab, expected the file of a `tokenizers` tokenizer",
            hint="save the tokenizer again with transformers: tokenizer.save_pretrained(FOLDER)",
        ) from None


def _shown(vocabulary: Mapping[int, str], token_id: int) -> str:
    return repr(vocabulary[token_id]) if token_id in vocabulary else "nothing"


def _check_special_tokens(target: ModelPlan, drafter: ModelPlan, key: str, origin: RecipeSource) -> tuple[str, ...]:
    """Return notes on special tokens that differ in their ids, or in their texts if one model has no id. On one
    tokenizer they are no obstacle: a base model's drafter ends elsewhere than a chat target, and the target's count.

    Raise RecipeError if they share none and no tokenizers were compared: nothing else says that the ids mean the same.
    """
    is_compared = target.facts.tokenizer and drafter.facts.tokenizer
    notes = []
    for name, note in SPECIAL_TOKENS.items():
        ours, theirs = _ids(target, name), _ids(drafter, name)
        if not (ours and theirs):
            ours, theirs = _texts(target, name), _texts(drafter, name)
        if ours and theirs and not ours & theirs and not is_compared:
            received, expected = (", ".join(map(repr, sorted(side))) for side in (theirs, ours))
            raise origin.refusal(
                key, f"a drafter with {name} token {received}", f"the target's {expected}", NOT_COMPARED
            )
        if ours and theirs and ours != theirs:
            notes.append(note.format(sorted(ours), sorted(theirs)))
    return tuple(notes)


def _ids(model: ModelPlan, name: str) -> set[Any]:
    if name == "eos":
        return set(model.facts.eos_token_ids)
    return set(special_ids(model.folder, name))


def _texts(model: ModelPlan, name: str) -> set[Any]:
    for file in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP):
        match (read_json_object(model.folder / file) or {}).get(f"{name}_token"):
            case str(text) | {"content": str(text)}:
                return {text}
    return set()
