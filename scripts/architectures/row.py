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
THREADS = (1, 2)
"""Numbers of threads on which windows are compared."""
EXACT = {
    True: "exact on CPUs in {}: windows of {} tokens give equal bits, on {}",
    False: "not exact on CPUs, where speculation may change tokens",
    None: "nobody looked yet whether it is exact on CPUs",
}
"""`Row.exact` -> the text of the table for proven classes."""


@dataclass(frozen=True)
class Row:
    """status: one of STATUSES; reason: why it is not proven; per_round: new tokens of a round, drafted from prompts;
    exact: whether windows of every width give equal bits on a CPU in the precisions that were looked at, None where
    nobody looked; exact_in: the precisions in which they do; loose: the operators whose results depend on the window in
    larger models; threads: their numbers with which windows were compared, one where none is given; processors: those
    on which they were."""

    model_type: str
    architecture: str
    status: str
    reason: str = ""
    per_round: float | None = None
    exact: bool | None = None
    exact_in: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    processors: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Return the reason in the words that hold for every class, without names and figures of this one."""
        if self.status == "proven":
            if self.exact_in and not self.exact:
                return (
                    f"exact on CPUs in {', '.join(self.exact_in)}, not in others, where speculation may change tokens"
                )
            return EXACT[self.exact].format(*self._look)
        reason = re.sub(r"^\w+ cannot be compiled: ", "", self.reason)
        return next((words for part, words in REASONS.items() if part in reason), reason)

    @property
    def _look(self) -> tuple[str, str, str]:
        """Return the precisions, widths and threads with which windows were compared. The first looks had fewer."""
        if not self.exact_in:
            return "float32", "2 to 5", "one thread, at sizes of full registers"
        return ", ".join(self.exact_in), "2 to 10", "one thread and two" if self.threads == THREADS else "one thread"

    def behind(self, earlier: "Row | None") -> "Row":
        """Return this row with the processors of an earlier look elsewhere, where that came to the same result, and
        the threads of both looks."""
        if earlier is None or {*earlier.processors} <= {*self.processors}:
            return self
        elsewhere = replace(self, threads=earlier.threads, processors=earlier.processors)
        if replace(earlier, per_round=self.per_round) != elsewhere:
            return self
        threads = self.threads if earlier.threads == self.threads else ()
        return replace(self, threads=threads, processors=tuple(sorted({*earlier.processors, *self.processors})))

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None, ())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Row":
        tuples = {key: tuple(data.get(key, ())) for key in ("exact_in", "loose", "threads", "processors")}
        return cls(**{"architecture": "", **data, **tuples})
