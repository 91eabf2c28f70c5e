"""Types of `servable.py`. They are in a stub, because the runtime imports nothing of the rooms above it."""

from speccompile.serving.scheduler import Limits, Observer, Service, SessionFolder

class Servable:
    def serve(
        self, limits: Limits | None = None, observer: Observer | None = None, sessions: SessionFolder | None = None
    ) -> Service: ...
