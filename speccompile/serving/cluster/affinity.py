"""Which replica a prompt belongs to."""

import json
from collections.abc import Sequence
from hashlib import sha256

from speccompile.serving.http.prompt_prefix import prompt_prefix

KEY_LENGTH = 256
"""Letters of a prompt that decide: more than most turns, fewer than most prompts of systems."""


def routing_key(body: bytes) -> str:
    """What a request's prompt begins with, "" where it has none. Later turns of a conversation have the same."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the replica says what is wrong
    return prompt_prefix(data)[:KEY_LENGTH] if isinstance(data, dict) else ""


def rendezvous_order(key: str, names: Sequence[str]) -> list[str]:
    """The names in an order that the key decides, and that one more or less of them hardly changes (rendezvous
    hashing)."""
    return sorted(names, key=lambda name: sha256(f"{name}\n{key}".encode("utf-8", "backslashreplace")).digest())
