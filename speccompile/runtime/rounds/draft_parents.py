"""Parents of the draft tokens in a slot's window, for hosts that write an input for every node."""

from collections.abc import Sequence

from speccompile.bundle.manifest import Manifest
from speccompile.runtime.devices.engine import Engine
from speccompile.tree import Tree, merged


class DraftParents:
    """Reads the trees of windows: constant in the graph, or made by the drafter."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._constant = _constant_parents(manifest)
        shape = (manifest.batch_size, manifest.tokens + 1)
        self._made = engine.host_view("parents", shape) if manifest.tree == "dynamic" else None

    def of(self, place: int) -> Sequence[int] | None:
        """Return the parents of a slot's nodes, or None for a chain."""
        if self._made is None:
            return self._constant
        parents: list[int] = self._made[place].tolist()
        return parents


def _constant_parents(manifest: Manifest) -> tuple[int, ...] | None:
    """Return the parents of a tree that is constant in the graph, else None. The plan has the tree of one drafter; with
    several drafters the window holds their merged trees."""
    if manifest.tree != "static":
        return None
    drafter = manifest.plan["drafter"]
    tree = Tree(tuple(drafter["tree"]["parents"]))
    return merged([tree] * max(1, len(drafter["models"]))).parents
