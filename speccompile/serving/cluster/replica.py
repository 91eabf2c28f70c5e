"""One bundle on one machine, behind the same application that `speccompile serve` runs."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

from speccompile.errors import EngineError
from speccompile.serving.http.app import Settings, make_app
from speccompile.serving.http.model import ServedModel
from speccompile.serving.scheduler import Limits

Message = MutableMapping[str, Any]
"""Message of ASGI."""


class Replica:
    """One replica of the deployment, an actor of Ray."""

    def __init__(
        self, folder: str, name: str, limits: Limits, settings: Settings, engine: str | None, threads: int, verify: bool
    ) -> None:
        self._begin(ServedModel(name, limits), settings)
        self._model.open(Path(folder), engine=engine, threads=threads, verify=verify)

    def _begin(self, model: ServedModel, settings: Settings) -> None:
        self._model, self._app = model, make_app(model, settings)

    async def ask(self, key: str, scope: dict[str, Any], body: bytes) -> AsyncIterator[Message]:
        """Yield the application's messages for a request. key: for the router. Closing the iterator, as when the client
        disconnects, cancels the request."""
        sent = asyncio.Queue[Message | None]()
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if given:
                return given.pop()
            return await asyncio.Future()  # cancelled when the client disconnects

        async def answer() -> None:
            try:
                await self._app(scope, receive, sent.put)
            finally:
                sent.put_nowait(None)

        working = asyncio.create_task(answer())
        try:
            while (message := await sent.get()) is not None:
                yield message
            await working
        finally:
            working.cancel()

    def check_health(self) -> None:
        """Raise if the model is not ready. Ray then replaces the replica."""
        if self._model.status != "ready":
            raise EngineError(f"the model is {self._model.status}")

    def __del__(self) -> None:
        if hasattr(self, "_model"):
            self._model.close(0)
