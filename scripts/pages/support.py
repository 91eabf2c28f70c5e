"""Tables of what is supported, for docs/reference/support.md."""

from collections.abc import Iterable, Mapping, Sequence

from scripts.architectures.table import looked_on, markdown, processors, read_rows, tried_with
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.compiler.checkpoints.quantization import METHODS
from speccompile.drafters import DRAFTING_METHODS, OWN
from speccompile.plan.precisions import ALIASES
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.recipe.combinations import COMBINATIONS, KEYS

COLUMNS = {"backend": "backend", "provider": "provider", "compute_capability": "compute_capability",
           "precision.target": "precision", "precision.drafter": "drafter_precision",
           "precision.block_size": "block_size"}  # fmt: skip
COMMON = {"graphs": "graphs", "drafter.kind": "drafter", "verify.method": "method", "decoding": "decoding"}
"""Keys that all engines have in common, which stand below the table."""


def engines() -> str:
    common = {key: {_words(row, dimension) for row in SUPPORT_TABLE} for key, dimension in COMMON.items()}
    lines = [_row(f"`{title}`" for title in COLUMNS), "|---" * len(COLUMNS) + "|"]
    lines += [_row(_words(row, dimension) for dimension in COLUMNS.values()) for row in SUPPORT_TABLE]
    return "\n".join([*lines, "", *(f"- `{key}`: {' / '.join(each)}" for key, each in common.items())])


def combinations() -> str:
    lines = [_row(f"`{key}`" for key in KEYS.values()), "|---" * len(KEYS) + "|"]
    return "\n".join([*lines, *(_row(_words(row, dimension) for dimension in KEYS) for row in COMBINATIONS)])


def drafters() -> str:
    """Yield kinds of drafters, the dialects that are read, and those in which `train` writes new ones."""
    lines = ["| `drafter.kind` | what drafts | checkpoints | trainable |", "|---|---|---|---|"]
    for kind, method in DRAFTING_METHODS.items():
        dialects = list(dict.fromkeys(dialect.name for dialect in method.dialects if not dialect.refused))
        folder = "Hugging Face layout" if method.weights == OWN else ", ".join(dialects) or "-"
        lines.append(_row((f"`{kind}`", method.summary, folder, trained(kind))))
    return "\n".join(lines)


def trained(kind: str) -> str:
    """Return what `speccompile train` exports for a kind; of several models it trains one at a time."""
    training = DRAFTING_METHODS["model" if kind == "models" else kind].training
    if training is None:
        return "-"
    return ", ".join(training.dialects) if training.makes_new else "only goes on from a checkpoint"


def spellings() -> str:
    """Return what is understood instead of the names of kinds and precisions."""
    kinds = {kind: method.aliases for kind, method in DRAFTING_METHODS.items() if method.aliases}
    precisions: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        precisions.setdefault(name, []).append(alias)
    rows = [(key, name, also) for key, names in (("drafter.kind", kinds), ("precision", precisions))
            for name, also in names.items()]  # fmt: skip
    lines = [_row((f"`{key}`", f"`{name}`", ", ".join(f"`{each}`" for each in also))) for key, name, also in rows]
    return "\n".join(["| key | name | also understood |", "|---|---|---|", *lines])


def quantized() -> str:
    rows = [_row((f"`{name}`", method.taken)) for name, method in METHODS.items()]
    return "\n".join(["| `quant_method` | what is read |", "|---|---|", *rows])


def multimodal() -> str:
    return ", ".join(f"`{model_type}`" for model_type in TYPES)


def architectures() -> str:
    rows = read_rows().values()
    return f"{markdown(rows)}\n\nTried with transformers {tried_with()}. {processors(rows, looked_on())}"


SECTIONS = {each.__name__: each for each in (engines, combinations, drafters, spellings, quantized, multimodal,
                                             architectures)}  # fmt: skip
"""Name of a section of the page -> what makes it."""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _words(row: Mapping[str, Sequence[str]], dimension: str) -> str:
    return ", ".join(f"`{word}`" for word in row[dimension]) or "-"
