"""Traits of a bundle's drafter: which states and inputs its graph has, and when it therefore must run or may rest."""

from dataclasses import dataclass

from speccompile.bundle.manifest import Manifest
from speccompile.contract import COMPONENTS, PERSISTENT_PREFIX, has_recurrent_states

TARGET = f"{COMPONENTS[0]}."
"""Name prefix of the target's caches."""


@dataclass(frozen=True)
class DrafterTraits:
    """Traits of a drafter.

    on_device: the engine runs on a GPU, where narrow windows cost as much as wide ones. has_graph: a graph drafts.
    is_fused: the target's graph drafts. has_own_cache: it has its own states; one that reads only the target's caches
    and features never lags. has_persistent_state: it has states that outlive a request. catches_up_alone: it needs
    tokens only. pairs: 1 if it pairs features with the next token, else 0. target_moves_on: the target has recurrent
    states or rings, and cannot read a token twice.
    """

    on_device: bool
    has_graph: bool
    is_fused: bool
    has_own_cache: bool
    has_persistent_state: bool
    catches_up_alone: bool
    pairs: int
    target_moves_on: bool

    @classmethod
    def of(cls, manifest: Manifest, *, on_device: bool) -> "DrafterTraits":
        """Return the traits of a bundle's drafter, which its graphs' inputs and outputs tell."""
        graphs = {graph.name: graph for graph in manifest.graphs}
        drafting, is_fused = graphs.get("step", graphs.get("draft")), "step" in graphs
        inputs, outputs = (drafting.inputs, drafting.outputs) if drafting else ((), ())
        states = [tensor.buffer for tensor in outputs if tensor.role == "state"]
        return cls(
            on_device=on_device,
            has_graph=drafting is not None,
            is_fused=is_fused,
            has_own_cache=any(not name.startswith((TARGET, PERSISTENT_PREFIX)) for name in states),
            has_persistent_state=any(name.startswith(PERSISTENT_PREFIX) for name in states),
            catches_up_alone=not is_fused and all(tensor.name != "features" for tensor in inputs),
            pairs=int(any(tensor.name == "pairs" for graph in manifest.graphs for tensor in graph.inputs)),
            target_moves_on=has_recurrent_states(manifest.graphs, COMPONENTS[0]) or bool(manifest.rings),
        )

    @property
    def overlap(self) -> int:
        """Return the number of tokens that consecutive prompt chunks share. After a chunk, the target's prediction
        takes the next token's position: a drafter that pairs features with the next token would keep a wrong cache
        entry."""
        return self.pairs if self.is_fused else 0

    @property
    def is_told(self) -> bool:
        """Return whether, in the middle of a prompt, the true next token replaces that prediction before the drafter
        runs."""
        return bool(self.pairs) and not self.is_fused

    @property
    def reads_while_paused(self) -> bool:
        """Return whether the drafter reads although no drafts are needed: the target could not read the missed tokens
        again for it, or its persistent state stays useful."""
        must_read = self.target_moves_on and self.has_own_cache and not self.catches_up_alone
        learns = self.has_persistent_state and not self.has_own_cache
        return not self.is_fused and (must_read or learns)

    @property
    def can_rest(self) -> bool:
        """Return whether rounds without drafts are possible and worth it. On a GPU a fused bundle would need the
        target's weights twice for them."""
        return not (self.is_fused and (self.on_device or (self.target_moves_on and self.has_own_cache)))

    @property
    def skips_host_rounds(self) -> bool:
        """Return whether the drafter may skip rounds with host drafts: it reads the missed tokens later, or never has
        to."""
        return not self.has_persistent_state and (self.catches_up_alone or not self.has_own_cache)
