"""Result of one class of transformers."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

STATUSES = {
    "proven": "built and proven, and gives the tokens of transformers' own greedy decoding",
    "refused": "refused by name, before anything is built",
    "impossible": "transformers makes no model of the class that reads a text and nothing else",
    "wrong": "gives something else than transformers",
    "broken": "the attempt came to no end",
}

REASONS: dict[str, str] = {
    "do not go through": "it attends without transformers' attention interface",
    "changes keys or values": "it changes keys or values between its cache and its attention",
    "multimodal checkpoint": "a multimodal type whose decoder nobody has compared with the whole",
    "neither causal nor a causal sliding window": "its mask is neither causal nor a causal sliding window",
    "choose the rows that they attend to": "its layers choose the rows that they attend to",
    "given the positions 0, 1, ..": "it counts its positions otherwise than from 0, one a token",
}
"""Part of a reason -> the text of the table for all classes that are refused with it."""

PRECISIONS = ("float32", "bfloat16", "int8", "int4")
"""Precisions of the target's weights in which windows are compared."""
EXACT = {
    True: f"exact on CPUs in {', '.join(PRECISIONS)}: windows of 2 to 10 tokens give equal bits, on one thread and two",
    False: "not exact on CPUs, where speculation may change tokens",
    None: "nobody looked yet whether it is exact on CPUs",
}
"""`Row.exact` -> the text of the table for proven classes."""
SOME = {
    ("float32",): "exact on CPUs in float32: windows of 2 to 10 tokens give equal bits, on one thread and two",
    (): "exact on CPUs in float32: windows of 2 to 5 tokens give equal bits, on one thread, at sizes of full registers",
}
"""`Row.exact_in` -> the text for classes that were looked at in float32 alone, with all widths or with fewer."""


@dataclass(frozen=True)
class Row:
    """status: one of STATUSES; reason: why it is not proven; per_round: new tokens of a round, drafted from prompts;
    exact: whether windows of every width give equal bits on a CPU in the precisions that were looked at, None where
    nobody looked; exact_in: the precisions in which they do; loose: the operators whose results depend on the window in
    larger models; processors: those on which windows were compared."""

    model_type: str
    architecture: str
    status: str
    reason: str = ""
    per_round: float | None = None
    exact: bool | None = None
    exact_in: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Return the reason in the words that hold for every class, without names and figures of this one."""
        if self.status == "proven":
            if self.exact_in and not self.exact:
                return (
                    f"exact on CPUs in {', '.join(self.exact_in)}, not in others, where speculation may change tokens"
                )
            return SOME.get(self.exact_in, EXACT[True]) if self.exact else EXACT[self.exact]
        reason = re.sub(r"^\w+ cannot be compiled: ", "", self.reason)
        return next((words for part, words in REASONS.items() if part in reason), reason)

    def behind(self, earlier: "Row | None") -> "Row":
        """Return this row with the processors of an earlier look as well, where that came to the same result."""
        if earlier is None or replace(earlier, per_round=self.per_round, processors=self.processors) != self:
            return self
        return replace(self, processors=tuple(sorted({*earlier.processors, *self.processors})))

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None, ())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Row":
        tuples = {key: tuple(data.get(key, ())) for key in ("exact_in", "loose", "processors")}
        return cls(**{"architecture": "", **data, **tuples})
