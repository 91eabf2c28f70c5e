"""Owner of an open engine: who may use it, what the drafter keeps in it, and its end."""

import gc
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from weakref import WeakSet

from speccompile.machine.keywords import named_after
from speccompile.machine.system import trim_heap
from speccompile.runtime.adapters import Adapters
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.exclusive_use import Caller, Closed, ExclusiveUse
from speccompile.runtime.round_times import RecordedTimes
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.drafter_state import PersistentState
from speccompile.runtime.sessions import Sessions
from speccompile.runtime.shipped_prefixes import ShippedPrefixes
from speccompile.runtime.text_stream import TextStream


@named_after("Bundle")
class EngineOwner:
    """Engine with its loop and persistent drafter state, used by one generation or service at a time until it is
    closed. A context manager: it is closed at the end of a `with` block."""

    def __init__(
        self, engine: Engine, loop: DecodeLoop, kept: PersistentState, sessions: Sessions, adapters: Adapters
    ) -> None:
        self.engine, self._loop, self._sessions, self._adapters = engine, loop, sessions, adapters
        self._prefixes = ShippedPrefixes(sessions, loop.serves)
        self.kept = kept
        """Persistent drafter state, which outlives a generation; false if the drafter has none."""
        self._times: RecordedTimes | None = None
        self._use = ExclusiveUse(self._record_times, self._release)
        self._streams = WeakSet[TextStream]()

    def _exclusive(self, *, serving: bool = False, caller: Caller | None = None) -> AbstractContextManager[None]:
        """Hold the buffers exclusively: see `ExclusiveUse.hold`."""
        return self._use.hold(serving=serving, caller=caller)

    def _record_times(self) -> None:
        if self._times is not None:
            self._times.update(self._loop.drafting.policy.measured_times())

    def close(self) -> None:
        """Release the engine's sessions and memory. A stream of this bundle ends; a generation that another thread has
        begun goes on to its end, and its memory is released then. Nothing more may begin. Safe to call twice. Raise
        EngineError while a service of the bundle runs."""
        for stream in [stream for stream in self._streams if stream.begun]:
            stream.close()
        self._use.close()

    def _release(self) -> None:
        closed: Any = Closed()
        self.engine = self.kept = self._loop = self._sessions = self._prefixes = self._adapters = closed
        gc.collect()  # engines on a GPU keep runs that refer to them
        trim_heap()

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: sessions of an engine belong to one process."""
        raise TypeError("a bundle cannot be copied or pickled: open it again where it is used, with load(FOLDER)")

    def __enter__(self) -> Self:
        self._use.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reset(self) -> None:
        """Reset the persistent drafter state to that of a newly opened bundle. It decides how many drafts are accepted
        and never a token; most drafters have none. A target with an encoder encodes its next source again, also if it
        is the last one. Raise EngineError in the middle of a stream."""
        with self._exclusive():
            self.kept.reset()
            if self._loop.sources is not None:
                self._loop.sources.forget()

    def save_kept(self, path: str | Path) -> None:
        """Write the persistent drafter state into a file, for `load_kept` of this bundle or another with the same
        drafting method and vocabulary. An existing file is replaced at once, when the new one is complete. Raise
        UsageError if there is no such state or the file cannot be written, EngineError in the middle of a stream."""
        with self._exclusive():
            self.kept.save(Path(path))

    def load_kept(self, path: str | Path) -> None:
        """Load what `save_kept` wrote. Raise UsageError, with the states unchanged, for a file that is truncated or of
        another drafting method, vocabulary or shape; otherwise raise as `save_kept` does."""
        with self._exclusive():
            self.kept.load(Path(path))

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Load an adapter of the target, a folder as PEFT writes it, under a name for `generate(adapter=NAME)`. The
        bundle must have a free slot for it (the recipe's section `adapters`).

        Raise UsageError for a name that cannot be taken, for a bundle without slots and if all are taken;
        CheckpointError for files that are damaged or of another base; UnsupportedModelError for what cannot be chosen
        at run time; EngineError in the middle of a stream and while a service runs. The slots are unchanged then.
        """
        with self._exclusive():
            self._adapters.load(name, Path(folder))

    def unload_adapter(self, name: str) -> None:
        """Free the slot of an adapter. Raise UsageError for a name that is not loaded, EngineError as
        `load_adapter`."""
        with self._exclusive():
            self._adapters.unload(name)
            self._loop.left = None  # its states may be read again, which needs the adapter

    @property
    def adapters(self) -> list[str]:
        """Return names of the loaded adapters."""
        return self._adapters.names

    def save_session(self, path: str | Path, *, notes: Mapping[str, str] | None = None) -> None:
        """Write the text of the latest generation, and the states that it left, into a file for `load_session`.

        That generation must be the last use of the bundle, of one prompt, and ended. After a service it is the request
        that ended last. notes: texts by name, which `session_notes` gives back. An existing file is replaced at
        once, when the new one is complete; only its owner may read it. Raise UsageError if there is nothing to write or
        the file cannot be written, EngineError in the middle of a stream.
        """
        with self._exclusive():
            self._sessions.save(Path(path), notes)

    def load_session(self, path: str | Path) -> list[int]:
        """Restore what `save_session` wrote, and return its tokens. The next generation of one prompt goes on from the
        prefix that the prompt shares with them, and gives the tokens that it gives without the file.

        Raise UsageError, with nothing changed, for a file that is damaged, or of another target, tokenizer, version or
        machine; the text that another drafter has read is read again. Otherwise raise as `save_session` does.
        """
        with self._exclusive():
            return self._sessions.load(Path(path))

    @property
    def session_notes(self) -> dict[str, str]:
        """Notes in the session that was loaded last."""
        return dict(self._sessions.notes)
