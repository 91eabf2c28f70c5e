"""The form of every error about a recipe: location, received, expected, hint."""

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from speccompile.errors import RecipeError

LONGEST_VALUE = 80


@dataclass(frozen=True)
class RecipeSource:
    """Source of a recipe's values: its file, and the key paths that the command line, or a caller in Python, set."""

    path: Path
    overridden: tuple[str, ...] = ()
    overridden_by: str = "--set"
    """Beginning of messages about these keys."""

    def is_overridden(self, key: str) -> bool:
        """Return whether an override set `key` or a section that contains it."""
        return any(key == path or key.startswith(f"{path}.") for path in self.overridden)

    def resolve(self, reference: str) -> Path:
        """Return the path that a recipe names: relative to the recipe's folder, `~` expanded. Raise RecipeError for a
        text that no file system takes as a path."""
        path = self.path.parent / os.path.expanduser(reference)  # noqa: PTH111 (pathlib's raises for unknown users)
        try:
            path.lstat()
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
                reason = error.strerror if isinstance(error, OSError) else error
                raise RecipeError(
                    f"{self.path}: received the path {format_value(reference)} ({reason}), expected that of a file",
                    hint="correct the path in the recipe",
                ) from None
        return path

    def refusal(self, key: str, received: str, expected: str, hint: str) -> RecipeError:
        """Return the error for the value at `key`. The caller raises it."""
        return self.error(key, f"received {received}, expected {expected}", hint)

    def error(self, key: str, problem: str, hint: str) -> RecipeError:
        """Return the error at `key` for a problem that already says what was received and expected."""
        where = f"{self.overridden_by} {key}" if self.is_overridden(key) else f"{self.path}: {key}"
        return RecipeError(f"{where}: {problem}", hint=hint)


def format_value(value: object) -> str:
    """Format a value of a recipe for a message: text in quotes, null, booleans and numbers as in YAML."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str() if len(value) > LONGEST_VALUE:
            return f"'{value[:LONGEST_VALUE]}...'"
        case str():
            return f"'{value}'"
        case dict():
            return "a mapping"
        case list() if value:
            return "a list"
        case _:
            return str(value)


def inapplicable_key(
    key: str, thing: str, word_key: str, word: str, words: Sequence[str], origin: RecipeSource
) -> RecipeError:
    """Return the error for `key`, which applies only if `word_key` is one of `words`; it is `word`."""
    return origin.refusal(
        key,
        f"a key that means nothing for this {thing}",
        f"it only with {word_key} {one_of(words)}, not {word}",
        f"remove {key} (or set it to null), or change {word_key}",
    )


def one_of(words: Sequence[str]) -> str:
    """Join words as "a", "a or b", "a, b or c"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, or None if none is similar."""
    return next(iter(get_close_matches(word, list(known), n=1)), None)
