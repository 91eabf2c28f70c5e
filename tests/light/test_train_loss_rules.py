"""Losses that a training cannot have are refused by name."""

import dataclasses
from pathlib import Path

import pytest

from speccompile.errors import RecipeError
from speccompile.plan.recipe_source import RecipeSource
from speccompile.plan.training_plan import LossPlan
from speccompile.recipe.training_losses import check_loss

PLAN = LossPlan("fkl", 0.5, 0.0, "decay", 0.8, "target", 0.5, anchors=3, drop=None)
ORIGIN = RecipeSource(Path("recipe.yaml"))


@pytest.mark.parametrize(
    ("changes", "kind", "packing", "message"),
    [
        ({"contexts": "drafter"}, "eagle3", "buckets", "contexts: received 'drafter' for a drafter of kind eagle3"),
        ({"contexts": "mixed"}, "medusa", "buckets", "contexts: received 'mixed' for a drafter of kind medusa"),
        ({"contexts": "mixed", "kind": "ce"}, "model", "buckets", "contexts: received 'mixed' with train.loss.kind ce"),
        ({"contexts": "mixed"}, "model", "packed", "contexts: received 'mixed' with train.data.packing packed"),
        ({"drop": "first"}, "model", "packed", "drop: received 'first' with train.data.packing packed"),
        ({"kind": "ce", "hard": 0.5}, "eagle3", "buckets", "hard: received 0.5 with train.loss.kind ce"),
        ({"kind": "rkl", "hard": 1}, "model", "buckets", "hard: received 1 with train.loss.kind rkl"),
    ],
)
def test_refused(changes, kind, packing, message):
    with pytest.raises(RecipeError, match=message) as caught:
        check_loss(dataclasses.replace(PLAN, **changes), kind, packing, ORIGIN)
    assert str(caught.value).startswith("recipe.yaml: train.loss.")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "kind", "packing"),
    [({}, "eagle3", "packed"), ({"contexts": "mixed", "kind": "rkl", "hard": 0.5}, "model", "buckets"),
     ({"kind": "ce"}, "medusa", "buckets"), ({"kind": "fkl", "hard": 1}, "dflash", "packed")],
)  # fmt: skip
def test_taken(changes, kind, packing):
    plan = dataclasses.replace(PLAN, **changes)
    assert check_loss(plan, kind, packing, ORIGIN) is None
