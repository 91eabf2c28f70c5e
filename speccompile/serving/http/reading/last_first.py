"""Semaphore that serves the newest waiting task first."""

import asyncio
from contextlib import suppress


class LastFirst:
    """Semaphore that gives a free place to the newest waiting task: a burst of tasks does not delay a later one. An
    `async with` block holds a place."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting = list[asyncio.Future[None]]()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(turn)
            if turn.done() and not turn.cancelled():  # it had just been given a place
                self._release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
