"""Number and resources of replicas."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replicas:
    """Number and resources of replicas. min_replicas, max_replicas, target_requests: for Ray's autoscaling, which aims
    at this number of requests per replica; None for a fixed `count`. threads: of an engine, and processors that Ray
    reserves for it. grace: seconds that its requests get to finish when it ends."""

    count: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    target_requests: float | None = None
    threads: int = 1
    gpus: float = 0.0
    grace: float = 30.0

    def options(self, rows: int) -> dict[str, Any]:
        """Return the options of a deployment. rows: batch slots of the bundle."""
        found: dict[str, Any] = {
            "max_ongoing_requests": 2 * rows,  # a second request per batch slot, so that no slot waits
            "ray_actor_options": {"num_cpus": self.threads, "num_gpus": self.gpus},
            "graceful_shutdown_timeout_s": self.grace,
            "max_constructor_retry_count": 2,
        }
        if self.max_replicas is None:
            return found | {"num_replicas": self.count}
        scaling: dict[str, Any] = {
            "min_replicas": 1 if self.min_replicas is None else self.min_replicas,
            "initial_replicas": max(self.count, self.min_replicas or 0),
        }
        scaling |= {"max_replicas": self.max_replicas, "target_ongoing_requests": self.target_requests or float(rows)}
        return found | {"autoscaling_config": scaling}
