"""Tiny targets with drafters beside them, as a training finds them: a context, a student, texts that the target saw."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from speccompile.compiler.build import build
from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.drafters import DRAFTING_METHODS, module_of
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.trainable import NewDrafter, TeacherBatch, TrainableDrafter
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.plan.recipe_source import RecipeSource
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.recipe.drafter_shape import decide_shape
from speccompile.runtime import Bundle
from speccompile.train.teacher import Teacher
from tests import zoo

LENGTH, MAX_LENGTH = 18, 64


def target(folder: Path, row: str = "llama", **settings: Any) -> PreTrainedModel:
    """Return one of the zoo's, with a tokenizer, at <folder>/target. settings: of its config."""
    model = zoo.model(row, **settings)
    model.save_pretrained(folder / "target")
    zoo.byte_tokenizer().save_pretrained(folder / "target")
    return model


def planned(folder: Path, kind: str, drafter: str = "") -> Plan:
    """Return the plan of the drafter at <folder>/head. drafter: more of its section."""
    more = "" if "tokens" in drafter else ", tokens: 3"
    (folder / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ndrafter: {{kind: {kind}, model: head{more}{drafter}}}\n"
        f"cache: {{max_length: {MAX_LENGTH}}}\n"
    )
    return make_plan(load_recipe(folder))


def check_built(folder: Path, kind: str) -> None:
    """Build the drafter in `folder`, and compare its tokens with those without drafts."""
    bundle = Bundle.open(build(planned(folder, kind, ", tokens: 2"), folder / "bundle"), threads=1)
    drafted = bundle.generate([5, 9, 17, 40], max_new_tokens=12, adaptive=False)
    assert drafted.token_ids == bundle.generate([5, 9, 17, 40], max_new_tokens=12, autoregressive=True).token_ids


def context(folder: Path, model: PreTrainedModel, kind: str, drafter: str = "") -> DrafterContext:
    """Return the context of the drafter at <folder>/head."""
    return replace(drafter_context(open_round(planned(folder, kind, drafter)).draft), model=model)


def student(found: DrafterContext, depth: int = 3) -> TrainableDrafter:
    made: TrainableDrafter = module_of(found.drafter.kind, "training").student(found, depth)
    return made


def begin(
    folder: Path, model: PreTrainedModel, kind: str, name: str = "head", *, sizes: Mapping[str, Any] | None = None,
    kept: Tensor | None = None, dialect: str = "", depth: int = 3, taps: tuple[str, ...] | None = None, seed: int = 0,
) -> Path:  # fmt: skip
    """Return a new drafter at <folder>/<name>, its sizes decided as by a plan."""
    training, config = DRAFTING_METHODS[kind].training, model.config.to_dict()
    assert training is not None
    decided = decide_shape(training.sizes, config, sizes or {}, RecipeSource(folder / "recipe.yaml"))
    wanted = NewDrafter(
        config, TargetEmbeddings(lambda: model), depth, decided,
        training.taps(model.config.num_hidden_layers) if taps is None else taps,
        kept, dialect or training.dialects[0], str(folder / "target"), seed, folder / "target",
    )  # fmt: skip
    module_of(kind, "training").new(folder / name, wanted)
    return folder / name


def written(
    folder: Path, write: Callable[[Path, PretrainedConfig], object], kind: str, **settings: Any
) -> DrafterContext:
    """Return a published head beside a tiny target. settings: of its config."""
    model = target(folder, **settings)
    write(folder / "head", model.config)
    return context(folder, model, kind)


def seen(model: PreTrainedModel, taps: tuple[str, ...], texts: int = 2, seed: int = 0) -> TeacherBatch:
    """Return random texts and what the target reads in them."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, model.config.vocab_size, (texts, LENGTH), generator=random)
    real = torch.ones_like(tokens, dtype=torch.bool)
    return Teacher(model, taps).forward(tokens, real, real)
