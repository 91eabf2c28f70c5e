"""Methods of acceptance by their names in a recipe, with their parameters: the one table of `verify.method`.

To add one: a row here, its rule in `compiler/step/verify/rules.py` and that rule's line in `methods.py` beside it, the
rows of the drafting methods that have it (`drafters/method.py`), and the texts of its keys in
`scripts/pages/recipe_keys.toml`. `scripts/docs --write` puts it into the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from speccompile.plan.section import optional


class Parameter(NamedTuple):
    """A key of the section `verify`. expected: in words; type: int or float; limits: of pydantic's Field."""

    default: float
    expected: str
    limits: Mapping[str, Any]
    type: type = float

    def schema(self) -> tuple[Any, Any]:
        """Return the type and the field of the key."""
        return self.type | None, optional(self.expected, self.default, **self.limits)


@dataclass(frozen=True)
class AcceptanceMethod:
    """is_exact: the target's output does not change."""

    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    is_exact: bool = False


_PROBABILITY = ("a probability from 0 to 1", {"ge": 0, "le": 1})
_NATS = ("a number of nats from 0 on", {"ge": 0, "allow_inf_nan": False})

ACCEPTANCE_METHODS: Mapping[str, AcceptanceMethod] = {
    "exact": AcceptanceMethod(is_exact=True),
    "typical": AcceptanceMethod({  # defaults of Medusa's code (Cai et al. 2024)
        "epsilon": Parameter(0.09, *_PROBABILITY),
        "delta": Parameter(0.3, "a number from 0 to 1", {"ge": 0, "le": 1}),
    }),
    "lenience": AcceptanceMethod({
        "lenience": Parameter(0.5, "a number above 0, at most 1", {"gt": 0, "le": 1}),
    }),
    "top_k": AcceptanceMethod({
        "k": Parameter(3, "a whole number from 1 on", {"ge": 1}, int),
        "gap": Parameter(2.0, *_NATS),
    }),
    "bild": AcceptanceMethod({
        "fallback": Parameter(0.5, *_PROBABILITY),
        "rollback": Parameter(3.0, *_NATS),
    }),
}  # fmt: skip

PARAMETERS: Mapping[str, Parameter] = {
    name: each for method in ACCEPTANCE_METHODS.values() for name, each in method.parameters.items()
}
