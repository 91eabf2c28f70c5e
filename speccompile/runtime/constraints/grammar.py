"""Compile constraints to grammars of llguidance."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccompile.errors import BundleError, UsageError
from speccompile.extras import naming_extra
from speccompile.runtime.constraints.fitted_tokenizer import fitted
from speccompile.runtime.constraints.limits import nested_too_deeply
from speccompile.runtime.constraints.matcher import Matcher, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLParserLimits, LLTokenizer

KINDS = ("json_schema", "json_object", "regex", "grammar", "choice")

WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
"""Whitespace between the parts of a JSON text: enough for readability, and bounded (as in llama.cpp's grammar)."""

_STUCK = "NoExtensionBias"
"""llguidance's word for a state in which no token is allowed."""

_LONGEST = 300
"""Maximum number of characters of llguidance's message in an error."""


class GrammarTokenizer:
    """Tokenizer as llguidance has it, for a model's vocabulary. It is opened at first use."""

    def __init__(self, path: Path, vocabulary_size: int, eos_token_ids: Sequence[int]) -> None:
        """path: of a `tokenizer.json`; eos_token_ids: end tokens of the model that have a row."""
        self._path, self._size, self._ends = path, vocabulary_size, list(eos_token_ids)

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        return _open(self._path, self._size, self._ends)

    def open(self) -> None:
        """Open the tokenizer now, which takes a second for a large one. Raise BundleError for one that llguidance does
        not take, and MissingPackageError without llguidance."""
        self._tokenizer  # noqa: B018

    def special(self, text: str) -> int | None:
        """Return the special token with this text, or None."""
        tokens = self._tokenizer.tokenize_str(text, parse_special=True)
        is_one = len(tokens) == 1 and self._tokenizer.is_special_token(tokens[0])
        return int(tokens[0]) if is_one else None

    def compile(self, kind: str, text: Any) -> Matcher:
        """Return a matcher at the start state, whatever time and memory it takes: see `GrammarCompiler.constraint`."""
        tokenizer = self._tokenizer
        from llguidance import LLMatcher

        try:
            grammar = _grammar(kind, text)
            grammar.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"constraint {kind}: received a text with half a surrogate pair, expected Unicode text",
                hint="give both halves, or the character itself",
            ) from None
        except RecursionError:
            raise nested_too_deeply(kind) from None
        inner = LLMatcher(tokenizer, grammar, log_level=0, limits=_limits())
        problems = [inner.get_error()] if inner.is_error() else inner.get_grammar_warnings()
        if problems:
            raise refused(kind, " ".join(problems))
        matcher = Matcher(inner, Vocabulary(self._size, frozenset(self._ends), frozenset(tokenizer.eos_tokens)))
        allows_any = matcher.allows_any()
        if inner.is_error():  # the first mask already reaches a limit of llguidance
            raise refused(kind, inner.get_error())
        if not allows_any:
            raise UsageError(
                f"constraint {kind}: received one that no text can meet but an empty one, expected one that some can",
                hint="allow at least one character",
            )
        return matcher


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
        raise refused(kind, str(error)) from error


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


def refused(kind: str, message: str) -> UsageError:
    """Return the error about a constraint that llguidance does not take. message: llguidance's."""
    plain = " ".join(message.split())
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
