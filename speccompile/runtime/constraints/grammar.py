"""Compile constraints to grammars of llguidance: once, for any number of sequences."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccompile.bundle.manifest import Manifest
from speccompile.errors import BundleError, UsageError
from speccompile.extras import naming_extra
from speccompile.runtime.constraints.fitted_tokenizer import fitted
from speccompile.runtime.constraints.matcher import Matcher, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLParserLimits, LLTokenizer

INPUT = "allowed"
"""Input of graphs that take constraints: the tokens that may follow every node of a round."""

KINDS = ("json_schema", "json_object", "regex", "grammar", "choice")

WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
"""Whitespace between the parts of a JSON text: enough for readability, and bounded (as in llama.cpp's grammar)."""

_STUCK = "NoExtensionBias"
"""llguidance's word for a state in which no token is allowed."""

_LONGEST = 300
"""Maximum number of characters of llguidance's message in an error."""


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
        self.is_supported = any(tensor.name == INPUT for graph in manifest.graphs for tensor in graph.inputs)
        """True if the bundle's graphs take constraints."""

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        if not self.is_supported:
            raise UsageError(
                "constraint: this bundle was built without constraints", hint="set constraints: true in the recipe"
            )
        if self._path is None:
            raise UsageError(
                "constraint: this bundle has no tokenizer, so no text to constrain",
                hint="add the tokenizer to the target's folder and build again",
            )
        return _open(self._path, self._manifest.vocabulary_size, self._ends)

    @property
    def _ends(self) -> list[int]:
        """End tokens of the model that have a row: one that only its generation config names may have none."""
        return [token for token in self._manifest.eos_token_ids if token < self._manifest.vocabulary_size]

    def warm(self) -> None:
        """Open the tokenizer now, which takes a second for a large one, instead of at first use."""
        self._tokenizer  # noqa: B018

    def special(self, text: str) -> int | None:
        """Return the special token with this text, or None."""
        tokens = self._tokenizer.tokenize_str(text, parse_special=True)
        is_one = len(tokens) == 1 and self._tokenizer.is_special_token(tokens[0])
        return int(tokens[0]) if is_one else None

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

    def constraint(self, kind: str, text: Any = "") -> Constraint:
        """Compile a constraint of new tokens.

        kind: `json_schema`, with a schema as text or a mapping; `json_object`; `regex`, which matches the whole text;
        `grammar`, in the Lark form of llguidance; `choice`, one of some texts. A generation ends when its text is
        complete, with finish_reason stop.

        Raise UsageError for bundles that were built without constraints, and for what llguidance does not support: no
        part of a constraint is ever ignored. Raise MissingPackageError without llguidance.
        """
        tokenizer = self._tokenizer
        from llguidance import LLMatcher

        if kind not in KINDS:
            raise UsageError(
                f"constraint: received the kind {kind!r}, expected one of {', '.join(KINDS)}", hint="give one of them"
            )
        try:
            grammar = _grammar(kind, text)
            grammar.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"constraint {kind}: received a text with half a surrogate pair, expected Unicode text",
                hint="give both halves, or the character itself",
            ) from None
        inner = LLMatcher(tokenizer, grammar, log_level=0, limits=_limits())
        said = [inner.get_error()] if inner.is_error() else inner.get_grammar_warnings()
        if said:
            raise _refused(kind, " ".join(said))
        ends = frozenset(self._ends)
        vocabulary = Vocabulary(self._manifest.vocabulary_size, ends, frozenset(tokenizer.eos_tokens))
        matcher = Matcher(inner, vocabulary)
        allows_any = matcher.allows_any()
        if inner.is_error():  # the first mask already reaches a limit of llguidance
            raise _refused(kind, inner.get_error())
        if not allows_any:
            raise UsageError(
                f"constraint {kind}: received one that no text can meet but an empty one, expected one that some can",
                hint="allow at least one character",
            )
        return Constraint(kind, text if isinstance(text, str) else json.dumps(text), self.tokenizer_hash, matcher)


def _grammar(kind: str, text: Any) -> str:
    """Return a grammar in llguidance's own form. Raise UsageError for a text that is not of this kind."""
    from llguidance import LLMatcher

    if kind == "json_object":
        return _of_schema(kind, {"type": "object"})
    if kind == "json_schema":
        return _of_schema(kind, text)
    if kind == "choice":
        return str(LLMatcher.grammar_from_lark(_of_choices(text)))
    if not isinstance(text, str) or not text:
        raise UsageError(f"constraint {kind}: received {text!r}, expected a text", hint="give at least one character")
    if kind == "regex":
        return str(LLMatcher.grammar_from_regex(text))
    return str(LLMatcher.grammar_from_lark(text))


def _of_schema(kind: str, schema: Any) -> str:
    from llguidance import LLMatcher

    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise UsageError(
                f"constraint {kind}: the schema is no JSON: {error}", hint="give a JSON schema, as text or as a mapping"
            ) from error
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise UsageError(
            f"constraint {kind}: received {type(schema).__name__}, expected a JSON schema, which is an object",
            hint='give one such as {"type": "object"}',
        )
    try:
        # never lenient, even if the schema's own x-guidance says so: unsupported keywords must not be ignored
        return str(
            LLMatcher.grammar_from_json_schema(
                schema, defaults={"whitespace_pattern": WHITESPACE}, overrides={"lenient": False}
            )
        )
    except ValueError as error:
        raise _refused(kind, str(error)) from error


def _of_choices(texts: Any) -> str:
    """Return the choices in Lark's form, with string literals as in JSON: as one terminal, since the parser's work on a
    rule with many alternatives grows with the square of their number."""
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(each, str) and each for each in texts):
        raise UsageError(
            f"constraint choice: received {texts!r}, expected one text or more, none of them empty",
            hint='give them as in ["yes", "no"]',
        )
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(each, ensure_ascii=False) for each in texts)


def _limits() -> "LLParserLimits":
    """Return llguidance's limits. A batch waits for the masks of all its sequences: the limits of a step, and of the
    grammar's size, with whose square a step's time may grow, bound the time of one mask to some hundredths of a second.
    The number of states bounds the memory of a matcher to about 100 MB."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        step_lexer_fuel=100_000, step_max_items=10_000, max_lexer_states=50_000, max_grammar_size=20_000,
        verbose_errors=False,
    )  # fmt: skip


def _refused(kind: str, said: str) -> UsageError:
    plain = " ".join(said.split())
    if _STUCK in plain:
        return UsageError(
            f"constraint {kind}: received one whose texts no token of this model can begin, expected one that some can",
            hint="allow other characters; `/tokenize` or the tokenizer shows which tokens there are",
        )
    return UsageError(
        f"constraint {kind}: llguidance does not take it: {plain[:_LONGEST]}",
        hint="leave out what it does not know: nothing of a constraint is ignored",
    )


def _open(path: Path, vocabulary_size: int, ends: list[int]) -> "LLTokenizer":
    with naming_extra("a constraint"):
        from llguidance import LLTokenizer
    try:
        text = fitted(path.read_text(encoding="utf-8"), vocabulary_size)
        return LLTokenizer(text, n_vocab=vocabulary_size, eos_token=ends or None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BundleError(
            f"{path}: llguidance does not take this tokenizer for {vocabulary_size} tokens: {error}",
            hint="leave constraints out",
        ) from error
