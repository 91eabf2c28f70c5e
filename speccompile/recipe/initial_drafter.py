"""Check the drafter at `train.begin`: refuse it if the trained weights could not be saved in its published layout."""

from dataclasses import dataclass, replace
from typing import Any

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.drafters.eagle3.taps import boundary, says_ids
from speccompile.drafters.find import read_head
from speccompile.drafters.folder import read_folder
from speccompile.drafters.method import Training
from speccompile.errors import SpeccompileError
from speccompile.plan.head import HeadPlan, HeadRequest
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource


@dataclass(frozen=True)
class BeginSource(RecipeSource):
    """Source of `train.begin`: errors of readers of drafters name it instead of `drafter.model`."""

    @classmethod
    def of(cls, origin: RecipeSource) -> "BeginSource":
        return cls(origin.path, origin.overridden)

    def error(self, key: str, problem: str, hint: str) -> Any:
        renamed = "train.begin" if key in ("drafter.model", "train.begin.model") else key
        return super().error(renamed, problem, hint.replace("train.begin.model", "train.begin"))


def check_initial_drafter(head: HeadPlan, training: Training, request: HeadRequest, origin: RecipeSource) -> None:
    """Raise RecipeError for a dialect that is not trained, and for taps or switches that override the head's config.

    request: by which the head was read, with the recipe's taps and switches.
    """
    why = training.read_only_dialects.get(head.dialect)
    if (head.folder / GGUF_INDEX).is_file():
        why = "a trained head is written as it was published, and no GGUF file is"
    if why is not None:
        raise origin.refusal(
            "train.begin", f"{head.folder}, heads in the dialect {head.dialect}", f"others: {why}",
            "train new heads: remove train.begin",
        )  # fmt: skip
    if not request.taps and not request.switches:
        return
    try:
        plain = read_head(head.folder, replace(request, taps=(), switches={}))
    except SpeccompileError:
        plain = None  # its files alone are not sufficient
    said = head if plain is None else plain
    if request.switches and (plain is None or said.switches != head.switches):
        names = ", ".join(name for name, value in head.switches.items() if said.switches.get(name) != value)
        _refuse("drafter.switches", names or "switches", head, origin)
    is_open = training.says_taps and not says_ids(read_folder(head.folder).config)
    if request.taps and list(map(_place, said.taps)) != list(map(_place, head.taps)) and not is_open:
        _refuse("drafter.taps", ", ".join(head.taps), head, origin)


def check_begin_model(model: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for a language model with quantized weights."""
    if model.facts.quantization is not None:
        raise origin.refusal(
            "train.begin", f"'{model.reference}', whose weights are quantized ({model.facts.quantization})",
            "weights in floats, which can be trained", "begin with the checkpoint that it was quantized from",
        )  # fmt: skip


def _place(tap: str) -> int | str:
    """Return the index of the layer boundary, which the output and the next layer's input share, or the tap itself."""
    found = boundary(tap)
    return tap if found is None else found


def _refuse(key: str, received: str, head: HeadPlan, origin: RecipeSource) -> None:
    raise origin.refusal(
        key, f"{received} in the place of what {head.folder / 'config.json'} says", "what it says: a trained head is "
        "saved with the config that it came with, which other engines read",
        f"correct config.json in a copy of the folder, and remove {key}",
    )  # fmt: skip
