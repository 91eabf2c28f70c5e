"""Methods without weights have references: a fault in a drafter, which its graph has too, fails the build."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from speccompile.compiler.build import build
from speccompile.compiler.step.draft import Drafted, lookup, occurrences
from speccompile.compiler.step.draft.ring import AnswerRing
from speccompile.compiler.step.draft.votes import SuffixPolicy
from speccompile.drafters import DRAFTING_METHODS, NONE, has_module
from speccompile.drafters.jacobi.drafter import Jacobi
from speccompile.drafters.lookahead.drafter import Lookahead
from speccompile.drafters.token_recycling.drafter import TokenRecycling
from speccompile.errors import ProofError
from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.tiny_bundles import save
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(2)


def after_next(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy that begins a token too late."""
    return lambda text, end, place, ahead: right(text, end, place, ahead + 1)


def other_order(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `forward` that gives its drafts the other way round."""

    def forward(*given: Any) -> Drafted:
        drafted: Drafted = right(*given)
        return drafted._replace(window=torch.cat([drafted.window[:, :1], drafted.window[:, 1:].flip(1)], 1))

    return forward


def one_less(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return budgets of one draft less."""
    return lambda *given: [max(0, each - 1) for each in right(*given)]


def next_token(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `append` of the token after each."""
    return lambda own, states, read: right(own, states, read._replace(path=read.path.roll(-1, 1)))


def known_first(right: Callable[..., Any]) -> Callable[..., Any]:
    """Return rows of a table in which what is new comes last."""
    return lambda own, fresh, known: right(own, known, fresh)


TREE = {"depth": 4, "top_k": 2, "nodes": 8}
FAULTS: dict[str, tuple[dict[str, Any], Any, str, Callable[..., Any]]] = {
    "prompt_lookup": ({"tokens": 4}, lookup, "gather_continuations", after_next),
    "suffix": ({"tokens": 4}, occurrences, "gather_continuations", after_next),
    "suffix, tree": ({"tree": TREE}, SuffixPolicy, "budgets", one_less),
    "suffix, answers": ({"tokens": 4, "remember": 256}, AnswerRing, "append", next_token),
    "token_recycling": ({"nodes": 12, "top_k": 4}, TokenRecycling, "_merged", known_first),
    "lookahead": ({"window": 3, "level": 3, "guesses": 2}, Lookahead, "forward", other_order),
    "jacobi": ({"tokens": 4}, Jacobi, "forward", other_order),
}
"""Drafter -> its keys; the function with a fault, and what makes it of the right one."""


@pytest.mark.parametrize(
    "name", sweep_but(["prompt_lookup"], FAULTS, "a build each, of what tests beside the drafters cover without one")
)
def test_a_fault_in_the_drafter_fails_its_build(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, owner, function, faulty = FAULTS[name]
    monkeypatch.setattr(owner, function, faulty(getattr(owner, function)))
    save(zoo.model("llama", num_hidden_layers=1), tmp_path / "target", tokenizer=False)
    cache = {"max_length": 64, "prefill_chunk": 16, "batch_size": 3}
    drafter = {"kind": name.partition(",")[0], **keys}
    recipe = {"name": "faulty", "target": {"model": "target"}, "drafter": drafter, "cache": cache}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    message = (
        r"^draft, neutral against eager, window \d+, row \d: drafts .* behind \[.*\], the method's reference drafts "
    )
    with pytest.raises(ProofError, match=message):
        build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle", use_build_cache=False)


def test_every_method_that_drafts_has_a_reference() -> None:
    assert [kind for kind in DRAFTING_METHODS if not has_module(kind, "reference")] == [NONE]
