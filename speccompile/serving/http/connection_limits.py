"""Limits of connections, before anything is known of their clients."""

import resource
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Protocol

_MOST, _SPARE = 1024, 96
"""Connections by default, and descriptors that are left for files, engines and readers of requests."""
RESERVE = 8
"""Connections beyond the limits that may only ask for the state of the server."""
RESERVED_PATHS = (b"/health", b"/metrics")
"""Paths that connections of the reserve may ask for."""


def default_connections() -> int:
    """Return the most connections that the descriptors of this process allow, at most 1024."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if descriptors == resource.RLIM_INFINITY else max(8, min(_MOST, descriptors - _SPARE))


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections. header_bytes: of a request's line and headers, and of the trailers of its body; headers:
    their number; header_seconds: from a request's first byte until they have come; body_seconds: until the body has
    come, and for which a client may not read its answer. idle_seconds: between two requests, and before the first; it
    must be longer than clients keep their connections (httpx 5, most proxies 60), because a request that arrives while
    its connection is being closed gets no answer. connections: open at once, None for as many as file descriptors
    allow; address_connections: of one address, None for half of those."""

    header_bytes: int = 32 * 1024
    headers: int = 100
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    connections: int | None = None
    address_connections: int | None = None
    idle_seconds: float = 75.0


class Abortable(Protocol):
    """Connection that can be ended at once. is_idle: whether it is between two requests, or had its time for the
    first."""

    @property
    def is_idle(self) -> bool: ...

    def abort(self) -> None:
        """End the connection."""


class Connections:
    """Open connections of a server. Those beyond the limits are of the reserve, which monitoring always gets into: a
    new one takes the place of the oldest."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._most = limits.connections or default_connections()
        self._most_of_address = limits.address_connections or max(1, self._most // 2)
        self._open = dict[Abortable, str]()
        self._of_address = Counter[str]()
        self._reserve = OrderedDict[Abortable, None]()

    def admit(self, connection: Abortable, address: str) -> bool:
        """Take a new connection. Return whether it is of the reserve. address: of the client, "" for none."""
        if not self._has_room(address):
            self._end_idle(address)
        if self._has_room(address):
            self._open[connection] = address
            self._of_address[address] += 1
            return False
        self._reserve[connection] = None
        if len(self._reserve) > RESERVE:
            oldest, _ = self._reserve.popitem(last=False)
            oldest.abort()
        return True

    def _has_room(self, address: str) -> bool:
        is_of_many = address != "" and self._of_address[address] >= self._most_of_address
        return len(self._open) < self._most and not is_of_many

    def _end_idle(self, address: str) -> None:
        """End the oldest connection that is idle, of the same address if that has too many."""
        own = len(self._open) < self._most
        idle = (one for one, other in self._open.items() if one.is_idle and (other == address or not own))
        oldest = next(idle, None)
        if oldest is not None:
            self.release(oldest)
            oldest.abort()

    def release(self, connection: Abortable) -> None:
        """Forget a connection that has ended."""
        self._reserve.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
