"""Bundle that can be served: the entrance to the scheduler. Its types are in `servable.pyi`."""

from importlib import import_module

from speccompile.machine.keywords import checks_keywords


class Servable:
    """Base of `Bundle`, with the method that needs a room above the runtime."""

    @checks_keywords("Bundle.serve")
    def serve(self, limits=None, observer=None, sessions=None):
        """Take requests from any thread and run them together in the bundle's batch slots until the service is closed.
        Return a `speccompile.serving.scheduler.Service` of this bundle, with that room's `Limits`, `Observer` and
        `SessionFolder`."""
        # Imported by name, like a plug-in: the serving room is built on the runtime, which does not depend on it.
        return import_module("speccompile.serving.scheduler").Service(self, limits, observer, sessions)
