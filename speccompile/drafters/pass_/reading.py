"""Read the folder of PaSS's embeddings."""

from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.pass_.dialects import EMBEDDINGS
from speccompile.drafters.target import check_sizes, target_hidden_size, target_mismatch_note
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read the embeddings. Raise CheckpointError for an invalid folder, RecipeError for those of another target."""
    keys, found = Keys(folder), dialect.rename(folder)
    check_sizes(keys, request, keys.get("hidden_size"), keys.get("vocab_size"))
    base = keys.get("base_model_name_or_path")
    keys.refuse_unknown()
    count, hidden = count_masks(folder, found[EMBEDDINGS].shape), target_hidden_size(request)
    check_sizes(keys, request, found[EMBEDDINGS].shape[1], None)
    found = check_tensors(folder, found, {EMBEDDINGS: (count, hidden)})
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, (), hidden, request.target.vocabulary_size,
        None, {}, found, tokens=count + 1, base=base, notes=target_mismatch_note(base, request),
    )  # fmt: skip


def count_masks(folder: HeadFolder, shape: tuple[int, ...]) -> int:
    """Return the number L of embeddings. Raise CheckpointError for a tensor of another form."""
    if len(shape) == 2 and min(shape) > 0:
        return shape[0]
    raise CheckpointError(
        f"{folder.path}: received tensor '{EMBEDDINGS}' of shape {list(shape)}, expected one row for each token that "
        "is drafted behind the first, as wide as the target's hidden size",
        hint="copy or download the folder again",
    )
