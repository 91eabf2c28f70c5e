"""Caches that are rings: how far back a slot's text may go. Position p stands in row p mod the number of rows, so that
a row behind the text, of a rejected draft or of a longer text, has replaced one before it."""

from speccompile.bundle.manifest import Manifest

FULL = "full"
"""Word for caches with a row for every token."""


class RingReach:
    """Reach of the rings of a bundle. Without rings a text may go back to any of its tokens."""

    def __init__(self, manifest: Manifest) -> None:
        tensors = (tensor for graph in manifest.graphs for tensor in graph.inputs)
        rows = {tensor.buffer: int(tensor.shape[2]) for tensor in tensors if tensor.buffer in manifest.rings}
        self.sizes = tuple(sorted(set(rows.values())))
        """Rows of the rings, each number once."""
        self._room = min((rows[name] - window for name, window in manifest.rings.items()), default=0)

    def __bool__(self) -> bool:
        """Return whether there are rings."""
        return bool(self.sizes)

    def holds(self, written: int, position: int) -> bool:
        """Return whether the rings hold all rows that a token at `position` reads. written: end of the positions whose
        rows have been written."""
        return not self.sizes or position == 0 or written <= self.sizes[0] or position >= written - self._room

    def may_end(self, written: int, length: int) -> bool:
        """Return whether rows up to `written` can have been written in a slot that holds a text of `length` tokens."""
        return length <= written and self.holds(written, length)

    def __str__(self) -> str:
        """Return the caches in words, as sessions name them."""
        return f"ring of {', '.join(map(str, self.sizes))} rows" if self.sizes else FULL
