"""Order of the replicas for a prompt."""

import json
from collections.abc import Sequence
from hashlib import sha256

from speccompile.serving.http.prompt_prefix import prompt_prefix

KEY_LENGTH = 256
"""Number of characters of a prompt in its key: more than most turns, fewer than most system prompts."""


def routing_key(body: bytes) -> str:
    """Return the key of a request: the beginning of its prompt, or "". Later turns of a conversation have the same
    key."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the replica reports the error
    return prompt_prefix(data)[:KEY_LENGTH] if isinstance(data, dict) else ""


def rendezvous_order(key: str, names: Sequence[str]) -> list[str]:
    """Return the names in an order that the key decides and that adding or removing a name hardly changes (rendezvous
    hashing)."""
    return sorted(names, key=lambda name: sha256(f"{name}\n{key}".encode("utf-8", "backslashreplace")).digest())
