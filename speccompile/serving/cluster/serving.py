"""Replicas of one bundle behind one address."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ray import serve
from ray.exceptions import RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError

from speccompile.errors import EngineError
from speccompile.serving.cluster.proxy import Proxy
from speccompile.serving.cluster.replica import Replica
from speccompile.serving.cluster.replicas import Replicas
from speccompile.serving.cluster.routing import PrefixRouter
from speccompile.serving.http.app import Settings
from speccompile.serving.http.images import MOST_BODY_BYTES
from speccompile.serving.scheduler import Limits

NAME = "speccompile"
"""Name of the application in the cluster."""


@dataclass(frozen=True)
class Deployment:
    """Bundle and settings of each replica. waiting: maximum of requests of all clients that wait for a replica."""

    folder: Path
    name: str
    rows: int
    limits: Limits
    settings: Settings
    waiting: int = 64
    engine: str | None = None
    verify: bool = True


@contextmanager
def deploy(served: Deployment, replicas: Replicas, host: str, port: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Deploy the replicas. When all answer, yield their address and a function that waits for an interrupt. The
    deployment ends with the block. Raise EngineError if a replica cannot begin."""
    try:
        serve.start(http_options={"host": host, "port": port})
        serve.run(application(served, replicas), name=NAME, route_prefix="/")
        yield f"http://{host}:{port}", threading.Event().wait
    except (RuntimeError, RayError) as error:
        raise EngineError(
            f"the replicas could not be started: {error}",
            hint="see whether `speccompile generate` runs the bundle, and the cluster has so many processors",
        ) from error
    finally:
        serve.shutdown()


def application(served: Deployment, replicas: Replicas) -> serve.Application:
    """Return the application for `serve.run`."""
    most = max(served.settings.max_body_bytes, MOST_BODY_BYTES)  # a replica knows whether its bundle sees

    def build_front() -> Proxy:
        return Proxy(serve.get_deployment_handle(Replica.__name__, app_name=NAME), most, BackPressureError)

    router = RequestRouterConfig(request_router_class=PrefixRouter, request_router_kwargs={"rows": served.rows})
    replica = serve.deployment(
        Replica, name=Replica.__name__, request_router_config=router, max_queued_requests=served.waiting,
        **replicas.options(served.rows),
    ).bind(
        str(served.folder.resolve()), served.name, served.limits, served.settings, served.engine, replicas.threads,
        served.verify,
    )  # fmt: skip
    front = serve.deployment(
        serve.ingress(build_front)(), name="Front", max_ongoing_requests=10_000, ray_actor_options={"num_cpus": 0}
    )
    return front.bind(replica)
