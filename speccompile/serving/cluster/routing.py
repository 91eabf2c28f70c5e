"""Router of requests: prefer the replica whose batch slots may hold the prefix of the prompt."""

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from speccompile.serving.cluster.affinity import rendezvous_order


class PrefixRouter(RequestRouter):  # type: ignore[misc] # Ray is not typed
    """Router by the key of a request, its first argument. The first replica in the key's order with a free batch slot
    gets the request. If none is free, or there is no key, the least loaded one does."""

    def initialize_state(self, rows: int) -> None:
        """Store the batch slots of a replica, `rows`."""
        self._rows = rows

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        key: Any = pending_request.args[0] if pending_request is not None and pending_request.args else ""
        if not key:
            return [candidate_replicas]
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lengths = {name: self.replica_queue_len_cache.get(each.replica_id) or 0 for name, each in replicas.items()}
        free = [replicas[name] for name in rendezvous_order(key, list(replicas)) if lengths[name] < self._rows]
        return [free[:1], candidate_replicas] if free else [candidate_replicas]
