"""Pictures of sequences that wait: encoded before a sequence gets a batch slot, while others begin and run."""

from collections.abc import Callable

from speccompile.serving.scheduler.scheduled import ScheduledSequence


class AwaitedPictures:
    """One look at the waiting sequences, in their order: the pictures of the first that lacks some are being encoded.

    Those of others wait for it, so that no more than one picture is encoded at a time; sequences of text do not.
    """

    def __init__(self, held: Callable[[ScheduledSequence], int]) -> None:
        """held: number of tokens of a sequence that some slot holds, whose pictures need not be encoded."""
        self._held = held
        self._first: ScheduledSequence | None = None

    def lacks(self, served: ScheduledSequence) -> bool:
        """Return whether a sequence needs pictures that are not encoded yet. Raise EngineError."""
        media = served.row.media
        if media is None:
            return False
        if self._first is not None:
            return True
        if media.prepare(self._held(served), waits=False):
            return False
        self._first, served.request.begun = served, True
        return True

    def wait(self) -> None:
        """Wait a moment for the picture that is being encoded. Raise EngineError."""
        if self._first is not None and (media := self._first.row.media) is not None:
            media.prepare(self._held(self._first), waits=True)
