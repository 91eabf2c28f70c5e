"""Decide the plan of retrieval from `drafter.index` or `drafter.gate.index`, and the keys of its search."""

from pathlib import Path

from speccompile.bundle.hashes import hash_file
from speccompile.errors import CheckpointError
from speccompile.index.files import HEADER, Header, find_tokenizer, read_header, tokenizer_hash
from speccompile.plan.plan import ModelPlan, RetrievalPlan
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe.schema import Drafter, TreeMapping

FEWEST, MOST = 2, 16
"""Minimum and maximum number of last tokens of the text to search for (He et al. 2023)."""
OCCURRENCES = 256
"""Default number of occurrences that vote on the next tokens. REST uses up to 5000, with the same top results."""


def decide_retrieval(written: Drafter, target: ModelPlan, origin: RecipeSource) -> RetrievalPlan:
    """Return the plan of retrieval. Raise RecipeError for an index that is missing or has another tokenizer than the
    target, BundleError for a folder that is no index, or a truncated one."""
    if written.index is None:
        for name in ("match", "occurrences"):
            if getattr(written, name) is not None:
                expected = "nothing where there is no index: a proposer is asked for drafts alone"
                raise origin.refusal(f"drafter.{name}", "a value", expected, f"add drafter.index, or remove {name}")
        if isinstance(written.tree, TreeMapping) and written.tree.top_k is not None:
            expected = "depth and nodes alone: a proposer says itself how its drafts branch"
            raise origin.refusal("drafter.tree.top_k", str(written.tree.top_k), expected, "remove drafter.tree.top_k")
        return RetrievalPlan(None, None, None, None)
    match = written.match or [FEWEST, MOST]
    fewest, most = match if isinstance(match, list) else (min(FEWEST, match), match)
    if fewest > most:
        expected = "the fewest tokens before the most, as in [2, 16]"
        raise origin.refusal("drafter.match", f"[{fewest}, {most}]", expected, f"set it to [{most}, {fewest}]")
    return decide_index(
        "drafter.index", written.index, (fewest, most, written.occurrences or OCCURRENCES), target, origin
    )


def decide_index(
    key: str, reference: str, asked: tuple[int, int, int], target: ModelPlan, origin: RecipeSource
) -> RetrievalPlan:
    """Return the plan of the index at `key` of the recipe. Raise as `decide_retrieval`."""
    folder = origin.resolve(reference)
    if not folder.is_dir():
        hint = "make it with `speccompile index TEXTS --tokenizer TARGET --output FOLDER`"
        received = f"'{reference}' (no folder lies at {folder})"
        raise origin.refusal(key, received, "the folder of an index", hint)
    _check_tokens(read_header(folder), target, key, reference, origin)
    return RetrievalPlan(reference, folder, hash_file(folder / HEADER), asked)


def _check_tokens(header: Header, target: ModelPlan, key: str, reference: str, origin: RecipeSource) -> None:
    """Raise RecipeError for an index whose token ids are not the target's."""
    hint = f"build it with `speccompile index TEXTS --tokenizer {target.reference} --output FOLDER`"
    if not target.facts.tokenizer:
        received = f"'{reference}', but the target has no tokenizer.json to compare its own with"
        raise origin.refusal(key, received, "a target with a tokenizer", f"remove {key}, or add the target's tokenizer")
    if _hash_of(target.folder) != header.tokenizer:
        received = f"'{reference}', an index of another tokenizer ({header.vocabulary_size} tokens)"
        expected = f"one of the target's ({target.facts.vocabulary_size} tokens)"
        raise origin.refusal(key, received, expected, hint)
    if header.largest_token >= target.facts.vocabulary_size:
        received = f"'{reference}', which has token {header.largest_token}"
        expected = f"tokens below {target.facts.vocabulary_size}, the size of the target's vocabulary"
        raise origin.refusal(key, received, expected, hint)


def _hash_of(folder: Path) -> str:
    from tokenizers import Tokenizer

    file = find_tokenizer(folder)
    try:
        model = Tokenizer.from_buffer(file.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{file}: received no tokenizer: {error}", hint="check the target's folder") from None
    return tokenizer_hash(model.get_vocab(with_added_tokens=False))
