"""Constraints of a bundle: compiled once, within limits, for any number of sequences."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO
from speccompile.errors import UsageError
from speccompile.runtime.constraints.grammar import KINDS, GrammarTokenizer
from speccompile.runtime.constraints.limits import SIMPLER, CompileLimits, check_size, to_json, written
from speccompile.runtime.constraints.matcher import Matcher
from speccompile.runtime.constraints.trial import Trials

INPUT = "allowed"
"""Input of graphs that take constraints: the tokens that may follow every node of a round."""

_LIMITS = CompileLimits()
_LINEAR = ("choice", "json_object")
"""Kinds that compile in milliseconds whatever their text is, within the limit of its size: they need no trial."""


@dataclass(frozen=True)
class Constraint:
    """Compiled constraint of some sequences. kind: of `KINDS`; text: as written by the user; tokenizer: hash of the
    tokenizer that it was made for; _compiled: a matcher at the start state, which sequences copy."""

    kind: str
    text: str
    tokenizer: str
    _compiled: Matcher = field(repr=False, compare=False)

    def matcher(self, ends: Collection[int]) -> Matcher:
        """Return a new matcher for one sequence, at the start state. ends: tokens that end the sequence; other end
        tokens of the model are never allowed."""
        return self._compiled.copy(ends)

    @property
    def has_failed(self) -> bool:
        """Return whether a sequence has reached a limit of llguidance in this grammar: others may, sooner than in one
        that is compiled anew."""
        return self._compiled.has_failed


ConstraintOption = Constraint | Sequence[Constraint | None] | None
"""Constraint for all prompts, or a sequence with one, or None, for each."""


class GrammarCompiler:
    """Compiler of constraints for a bundle's tokenizer and its model's vocabulary. It opens the tokenizer at first
    use."""

    def __init__(self, manifest: Manifest, tokenizer: Path | None, hashed: str) -> None:
        """tokenizer: path of a `tokenizer.json`, None if the bundle has none; hashed: its hash."""
        self._path, self.tokenizer_hash, self._manifest = tokenizer, hashed, manifest
        self._lock, self._trials = threading.Lock(), cast("Trials | None", None)
        self._hears = AUDIO in (manifest.source or {})
        self.is_supported = not self._hears and any(t.name == INPUT for graph in manifest.graphs for t in graph.inputs)
        """True if the bundle takes constraints."""

    @cached_property
    def _tokenizer(self) -> GrammarTokenizer:
        return GrammarTokenizer(self._tokenizer_path(), self._manifest.vocabulary_size, self._ends)

    def _tokenizer_path(self) -> Path:
        """Return the path of the tokenizer. Raise UsageError if the bundle cannot take constraints."""
        if not self.is_supported:
            hint = "leave constraint out" if self._hears else "set constraints: true in the recipe"
            why = "'s target hears, and has rules of its own" if self._hears else " was built without constraints"
            raise UsageError(f"constraint: this bundle{why}", hint=hint)
        if self._path is None:
            raise UsageError(
                "constraint: this bundle has no tokenizer, so no text to constrain",
                hint="add the tokenizer to the target's folder and build again",
            )
        return self._path

    @property
    def _ends(self) -> list[int]:
        """End tokens of the model that have a row: one that only its generation config names may have none."""
        return [token for token in self._manifest.eos_token_ids if token < self._manifest.vocabulary_size]

    def warm(self) -> None:
        """Open the tokenizer now, which takes a second for a large one, instead of at first use."""
        self._tokenizer.open()

    def special(self, text: str) -> int | None:
        """Return the special token with this text, or None."""
        return self._tokenizer.special(text)

    def per_prompt(self, given: Any, prompts: int) -> "list[Constraint | None]":
        """Return the constraint of each prompt: `given` is one for all, or a sequence. Raise UsageError for an invalid
        one."""
        if given is None or isinstance(given, Constraint) or not isinstance(given, Sequence) or isinstance(given, str):
            given = [given] * prompts
        if len(given) != prompts:
            raise UsageError(
                f"constraint: received {len(given)} values, expected one, or one for each of {prompts} prompts",
                hint="give a single one for all prompts",
            )
        for each in given:
            if each is not None:
                self._check(each)
        return list(given)

    def _check(self, constraint: Any) -> None:
        """Raise UsageError if sequences of the bundle cannot take the constraint."""
        if not isinstance(constraint, Constraint):
            raise UsageError(
                f"constraint: received {type(constraint).__name__}, expected what Bundle.constraint gives",
                hint='as in constraint=bundle.constraint("choice", ["yes", "no"])',
            )
        if not self.is_supported or constraint.tokenizer != self.tokenizer_hash:
            raise UsageError(
                "constraint: received one of another bundle, expected one made for this bundle's tokenizer",
                hint="make it by the constraint of this bundle",
            )

    def constraint(self, kind: str, text: Any = "", limits: CompileLimits = _LIMITS) -> Constraint:
        """Compile a constraint of new tokens.

        kind: `json_schema`, with a schema as text or a mapping; `json_object`; `regex`, which matches the whole text;
        `grammar`, in the Lark form of llguidance; `choice`, one of some texts. A generation ends when its text is
        complete, with finish_reason stop. limits: of the time, the memory and the text's size; a child process
        compiles the constraint first, which the kernel ends there.

        Raise UsageError for bundles that were built without constraints, for a constraint that reaches a limit, and for
        what llguidance does not support: no part of a constraint is ever ignored. Raise MissingPackageError without
        llguidance, and EngineError where no child can be started.
        """
        self._check_kind(kind)
        check_size(written(kind, text), limits.grammar_bytes, hint=SIMPLER)
        if kind not in _LINEAR:
            trials = self._started_trials()  # opens the tokenizer while this process does
            self._tokenizer.open()
            trials.check(kind, to_json(kind, text), limits)
        return self.compile(kind, text)

    def compile(self, kind: str, text: Any = "") -> Constraint:
        """Compile a constraint in this process, whatever it takes: see `constraint`."""
        self._check_kind(kind)
        return Constraint(kind, written(kind, text), self.tokenizer_hash, self._tokenizer.compile(kind, text))

    def _check_kind(self, kind: str) -> None:
        self._tokenizer_path()
        if kind not in KINDS:
            raise UsageError(
                f"constraint: received the kind {kind!r}, expected one of {', '.join(KINDS)}", hint="give one of them"
            )

    def _started_trials(self) -> Trials:
        with self._lock:
            if self._trials is None:
                self._trials = Trials(
                    {
                        "tokenizer": str(self._tokenizer_path()), "vocabulary_size": self._manifest.vocabulary_size,
                        "eos_token_ids": self._ends,
                    }
                )  # fmt: skip
            return self._trials

    def close(self) -> None:
        """End the process that tries constraints, if there is one. Constraints may still be compiled."""
        with self._lock:
            trials, self._trials = self._trials, None
        if trials is not None:
            trials.close()
