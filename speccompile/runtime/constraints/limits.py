"""Limits of compiling one constraint."""

import json
from dataclasses import dataclass
from typing import Any

from speccompile.errors import UsageError

SIMPLER = "ask for a simpler form, or give Bundle.constraint other limits, in Python"
"""Hint at a limit that is reached outside the server."""


@dataclass(frozen=True)
class CompileLimits:
    """Limits of compiling one constraint. seconds: of a processor; memory_mib: MiB beyond what an idle process has;
    grammar_bytes: of a schema, grammar, expression or list of choices."""

    seconds: float = 3.0
    memory_mib: int = 512
    grammar_bytes: int = 64 * 1024


def nested_too_deeply(kind: str) -> UsageError:
    """Return the error about a constraint that is nested deeper than its reader's stack."""
    return UsageError(f"constraint {kind}: it is nested too deeply", hint="ask for a simpler form")


def written(kind: str, text: Any) -> str:
    """Return the text of a constraint, or its JSON. Raise as `to_json`."""
    return text if isinstance(text, str) else to_json(kind, text)


def to_json(kind: str, text: Any) -> str:
    """Return the JSON of a constraint's text or value. Raise UsageError for what JSON cannot hold."""
    try:
        return json.dumps(text)
    except RecursionError:
        raise nested_too_deeply(kind) from None
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"constraint {kind}: received what JSON cannot hold: {error}",
            hint="give texts, numbers, lists and mappings",
        ) from None


def check_size(text: str, most: int, hint: str) -> None:
    """Raise UsageError for a constraint of more than `most` bytes."""
    size = len(text.encode(errors="surrogatepass"))
    if size > most:
        raise UsageError(
            f"received a constraint of {size} bytes, expected at most {most}: the limit grammar_bytes", hint=hint
        )
