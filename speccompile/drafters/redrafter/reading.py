"""Read the folder of a ReDrafter head."""

from speccompile.drafters.dialects import Dialect, Keys, check_tensors
from speccompile.drafters.target import NORM, check_sizes, target_hidden_size, target_mismatch_note
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest
from speccompile.plan.layers import Shapes

CELLS = RNN, SUM = ("rnn", "sum")
"""Cells of the recurrent state: SiLU(W e + U s + b), or the sum of the embeddings."""


def read(folder: HeadFolder, request: HeadRequest, dialect: Dialect, evidence: str) -> HeadPlan:
    """Read the head. Raise CheckpointError for an invalid folder, RecipeError for a head of another target."""
    keys, found = Keys(folder), dialect.rename(folder)
    sizes = (target_hidden_size(request), request.target.vocabulary_size)
    check_sizes(keys, request, keys.get("hidden_size"), keys.get("vocab_size"))
    layers, width = keys.count("num_draft_layers", least=0), keys.count("exit_dim")
    cell = RNN if keys.flag("rnn", default=False) else SUM
    keys.ignore("num_lookback_tokens")  # of training
    base = keys.get("base_model_name_or_path")
    keys.refuse_unknown()
    last = f"output.{layers}.weight"
    found = {"output.weight" if name == last else name: source for name, source in found.items()}
    found = check_tensors(folder, found, head_shapes(layers, width, sizes, cell))
    return HeadPlan(
        request.kind, dialect.name, evidence, folder.path, folder.files, (NORM,), *sizes, None,
        {"cell": cell, "exit_dim": width}, found, base=base, notes=target_mismatch_note(base, request),
    )  # fmt: skip


def head_shapes(layers: int, width: int, sizes: tuple[int, int], cell: str) -> Shapes:
    """Return the tensors of the formula. width: of the residual blocks; sizes: the target's hidden size and vocabulary
    size."""
    hidden, vocabulary = sizes
    expected: Shapes = {"output.weight": (vocabulary, width)}
    for layer in range(layers):
        expected |= {f"blocks.{layer}.weight": (width, width), f"blocks.{layer}.bias": (width,)}
    if width != 2 * hidden:
        expected |= {"input_proj.weight": (width, 2 * hidden), "input_proj.bias": (width,)}
    if cell == RNN:
        expected |= {"rnn_u.weight": (hidden, hidden), "rnn_u.bias": (hidden,), "rnn_w.weight": (hidden, hidden)}
    return expected
