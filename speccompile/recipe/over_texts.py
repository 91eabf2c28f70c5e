"""Check drafts over texts (`drafter.tokenizer: text`): the host turns what a model writes into the target's tokens."""

from collections.abc import Iterable

from speccompile.drafters import DRAFTING_METHODS
from speccompile.plan.plan import TEXT, DrafterPlan, EnginePlan, ModelPlan, TreePlan
from speccompile.plan.recipe_source import RecipeSource, one_of
from speccompile.recipe.schema import Drafter
from speccompile.recipe.tokenizers import KEY

KINDS = tuple(kind for kind, method in DRAFTING_METHODS.items() if method.over_texts)
"""Kinds that draft over texts."""
_UNSUPPORTED_METHOD = "bild"
"""Verification by the drafter's probabilities, which texts do not have."""


def check_text_drafts(written: Drafter, kind: str, tree: TreePlan, method: str, origin: RecipeSource) -> None:
    """Raise RecipeError for keys that drafts over texts do not support: they are a chain of certain drafts."""
    if kind not in KINDS:
        received = f"'{TEXT}', with drafter.kind {kind}"
        raise origin.refusal(KEY, received, f"it with drafter.kind {one_of(KINDS)}", f"set {KEY} to map")
    if tree.kind != "chain":
        received, hint = f"a {tree.kind} tree beside {KEY} {TEXT}", f"remove drafter.tree, or set {KEY} to map"
        raise origin.refusal("drafter.tree", received, "a chain: a text has one continuation", hint)
    if written.sample:
        expected, hint = "false: what is drawn over texts has no probability", f"remove it, or set {KEY} to map"
        raise origin.refusal("drafter.sample", f"true, beside {KEY} {TEXT}", expected, hint)
    if method == _UNSUPPORTED_METHOD:
        expected = "another method: the drafter's probabilities stay on the host"
        raise origin.refusal("verify.method", f"'{method}', beside {KEY} {TEXT}", expected, "remove verify.method")
    for name in ("then", "gate", "drafter"):
        if getattr(written, name) is not None:
            received = f"a lookup beside {KEY} {TEXT}"
            hint = f"remove drafter.{name}, or set {KEY} to map"
            raise origin.refusal(f"drafter.{name}", received, "nothing: the host writes these drafts", hint)


def check_text_pair(target: ModelPlan, drafter: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for a model without a tokenizer."""
    for name, model in (("target", target), ("drafter", drafter)):
        if not model.facts.tokenizer:
            received = f"'{TEXT}', but the {name} '{model.reference}' has no tokenizer.json"
            hint = "save its tokenizer beside the model, as transformers writes it: tokenizer.save_pretrained(FOLDER)"
            raise origin.refusal(KEY, received, "the tokenizers of both, which read and write the texts", hint)


def check_text_engines(draft: DrafterPlan, engines: Iterable[EnginePlan], origin: RecipeSource) -> None:
    """Raise RecipeError for drafts over texts on a device other than the processor."""
    for engine in engines if draft.over_texts else ():
        if engine.provider != "cpu":
            received, hint = f"'{TEXT}', with an engine on {engine.provider}", f"set {KEY} to map, or engines to cpu"
            raise origin.refusal(KEY, received, "engines on the processor alone, where the host drafts", hint)
