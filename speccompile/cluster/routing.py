"""Which replica answers a request: the one whose rows may hold what its prompt begins with."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

BEGINNING = 256
"""Letters of a prompt that decide: more than most turns, fewer than most prompts of systems."""


def key_of(body: bytes) -> str:
    """What a request's prompt begins with, "" where it has none. Later turns of a conversation have the same."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # the replica says what is wrong
    if not isinstance(data, dict):
        return ""
    prompt = data.get("prompt", data.get("messages"))
    return (prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False))[:BEGINNING] if prompt else ""


def ranked(key: str, names: Sequence[str]) -> list[str]:
    """The names in an order that the key decides, and that one more or less of them hardly changes (rendezvous
    hashing)."""
    return sorted(names, key=lambda name: sha256(f"{name}\n{key}".encode("utf-8", "backslashreplace")).digest())


class PrefixRouter(RequestRouter):
    """The first argument of a request is its key. The first replica in the key's order with a free row gets it; where
    none has any, or there is no key, the least loaded."""

    def initialize_state(self, rows: int) -> None:
        """rows: of a replica."""
        self._rows = rows

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        key: Any = pending_request.args[0] if pending_request is not None and pending_request.args else ""
        if not key:
            return [candidate_replicas]
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lengths = {name: self.replica_queue_len_cache.get(each.replica_id) or 0 for name, each in replicas.items()}
        free = [replicas[name] for name in ranked(key, list(replicas)) if lengths[name] < self._rows]
        return [free[:1], candidate_replicas] if free else [candidate_replicas]
