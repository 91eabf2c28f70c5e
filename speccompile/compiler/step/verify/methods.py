"""Verification methods by the names that a recipe gives them."""

from collections.abc import Mapping, Sequence

from speccompile.compiler.step.verify import Acceptance
from speccompile.compiler.step.verify.rules import Exact, Lenient, Rollback, Rule, TopK, Typical
from speccompile.compiler.step.verify.sampled import Speculative
from speccompile.tree import Tree


def make_acceptance(
    method: str, parameters: Mapping[str, float], *, tree: Tree | None, is_sampling: bool, draws: bool,
    first_timestamp: int | None = None, hidden: Sequence[int] = (),
) -> Acceptance:  # fmt: skip
    """Return the acceptance of a method with its parameters, as in `plan.VerifyPlan`.

    tree: of the drafts, None if the drafter makes it or there are no drafts. is_sampling: the graph can sample; draws:
    the drafts are sampled. first_timestamp: of a target that writes times; hidden: tokens that no text has.
    """
    rule, lenience = _rule(method, parameters), parameters.get("lenience", 1.0)
    if is_sampling and tree is not None and (draws or method == "lenience"):
        return Acceptance(rule, Speculative(tree, lenience), first_timestamp, hidden)
    return Acceptance(rule, None, first_timestamp, hidden)


def _rule(method: str, parameters: Mapping[str, float]) -> Rule:
    match method:
        case "exact":
            return Exact()
        case "typical":
            return Typical(parameters["epsilon"], parameters["delta"])
        case "lenience":
            return Lenient(parameters["lenience"])
        case "top_k":
            return TopK(int(parameters["k"]), parameters["gap"])
        case "bild":
            return Rollback(parameters["rollback"])
        case _:
            raise AssertionError(f"the plan knows no method {method!r}")
