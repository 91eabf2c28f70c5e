"""Verification: run the target over the window, accept drafts, commit the accepted rows.

target   the target's distribution and its own choice at every row
rules    acceptance rules for deterministic drafts
sampled  acceptance of sampled drafts, and the residual distribution
methods  names of the verification methods in a recipe
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.compiler.step import ops
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.low_rank import AdapterSlots, adapting
from speccompile.compiler.step.media_rows import MediaRows, same_picture
from speccompile.compiler.step.sampling import Adjustments, Settings
from speccompile.compiler.step.taps import Taps
from speccompile.compiler.step.verify.rules import Drafts, Exact, Rule
from speccompile.compiler.step.verify.sampled import DraftDistribution, Speculative
from speccompile.compiler.step.verify.target import Target, Timestamps, choices, greedy_target, sampling_target
from speccompile.compiler.step.window import AcceptedPath, ChainLayout, Shape, TreeNodes


class RoundInputs(NamedTuple):
    """Inputs of a round; see `contract`. window int64 [B, W]; n_given, n_total, length int64 [B]; logit_rows int64 [R]
    = 0, 1, ..; in sampling graphs settings and uniforms float32 [B, R]; if drafts are sampled, ids and probs [B, N, C],
    and accept_uniforms float32 [B, N]; parents int64 [B, N + 1] if the drafter makes the tree; in graphs with
    constraints allowed bool [B, R, V] or [B, R, 1]; with adapters adapter int64 [B], and matrices: see `low_rank`; of a
    target that sees pictures media, media_rows, ..: see `speccompile.bundle.media`; with an encoder source_length int64
    [B]; of one that writes times timestamps bool [B]; in sampling graphs adjusted int64, biases and penalties float32
    [B, R, K]."""

    window: Tensor
    n_given: Tensor
    n_total: Tensor
    length: Tensor
    logit_rows: Tensor
    settings: Settings | None = None
    uniforms: Tensor | None = None
    accept_uniforms: Tensor | None = None
    ids: Tensor | None = None
    probs: Tensor | None = None
    parents: Tensor | None = None
    allowed: Tensor | None = None
    adapter: Tensor | None = None
    matrices: Sequence[Tensor] = ()
    media: Tensor | None = None
    media_rows: Tensor | None = None
    media_blocks: Tensor | None = None
    media_offsets: Tensor | None = None
    source_length: Tensor | None = None
    timestamps: Tensor | None = None
    adjusted: Tensor | None = None
    biases: Tensor | None = None
    penalties: Tensor | None = None

    @property
    def adjustments(self) -> Adjustments | None:
        """Return what is added to logits, None in a graph without these inputs."""
        if self.adjusted is None or self.biases is None or self.penalties is None:
            return None
        return Adjustments(self.adjusted, self.biases, self.penalties)


class Verified(NamedTuple):
    """Result of a round. path int64 [B, W + 1], n_path int64 [B], logits float32 [B, R, V], caches in the order of the
    inputs; with a tree nodes int64 [B, R]; with taps features float32 [B, W, F]; if the drafter reads them, successors
    int64 [B, R, K] and row_tokens int64 [B, R], -1 for rows without a token."""

    path: Tensor
    n_path: Tensor
    logits: Tensor
    caches: list[Tensor]
    nodes: Tensor | None = None
    features: Tensor | None = None
    successors: Tensor | None = None
    row_tokens: Tensor | None = None


class Verify(nn.Module):
    """One round of the target. Prefill is the same graph: all tokens are given, none is drafted."""

    def __init__(
        self,
        decoder: Decoder,
        shape: Shape | None = None,
        acceptance: "Acceptance | None" = None,
        taps: Sequence[str] = (),
        successors: int = 0,
        adapters: AdapterSlots | None = None,
        media: MediaRows | None = None,
    ) -> None:
        """shape: layout of a window, a chain by default; acceptance: exact by default; taps: hidden states of the
        target that the drafter reads, see `step.taps`; successors: number of the target's best tokens after every row
        that it reads; adapters: slots of adapters that are chosen at run time; media: of a target with pictures."""
        super().__init__()
        self.decoder, self.shape, self.taps, self.successors = decoder, shape or ChainLayout(), tuple(taps), successors
        self.adapters, self.media = adapters, media
        self.acceptance = acceptance or Acceptance(Exact())

    @property
    def n_features(self) -> int:
        """Return F, the width of all taps together."""
        return len(self.taps) * int(self.decoder.model.config.hidden_size)

    def forward(self, given: RoundInputs, caches: list[Tensor]) -> Verified:
        window, n_given, n_rows = given.window, given.n_given, given.logit_rows
        nodes = self.shape.nodes(given.parents, window.shape[0])
        layout = self.shape.layout(window, n_given, given.length, nodes)
        positions = self.decoder.clamp(layout.positions)
        current = self.decoder.begin(caches, given.length, given.source_length)
        visible, in_windows = self._visible(given, layout.visible)
        current.set_positions(positions, positions, visible)
        current.in_windows = in_windows
        if self.decoder.is_recurrent:
            current.branches = self.shape.branches(window, n_given, nodes)
        rows = (n_given[:, None] - 1 + n_rows).clamp(min=0, max=window.shape[1] - 1)  # [B, R]: rows of the nodes
        taps = Taps(self.decoder.model, self.taps) if self.taps else None
        with adapting(self.decoder.model, self.adapters, given.matrices, given.adapter), self._seeing(given):
            logits = self.decoder.run(current, self._read(given), rows, taps)

        walk, bonus = self.acceptance(given, logits, _preceding_tokens(given, rows, layout.visible), self.shape, nodes)
        n_path = torch.where(n_given > 0, n_given + walk.n_accepted, 0)
        accepted = window if walk.order is None else window.gather(1, walk.order)
        padded = torch.cat([accepted, bonus], 1)  # [B, W + 1]
        after = torch.arange(padded.shape[1], device=window.device)
        path = torch.where(after == n_path[:, None], bonus, padded)
        committed = current.commit([_gather_path(rows, walk.order) for rows in current.rows()], n_path)
        best, tokens = self._successors(given, rows, logits)
        features = _features(taps, walk.order)
        return Verified(path, n_path, logits, committed, _nodes(walk, n_rows), features, best, tokens)

    def _read(self, given: RoundInputs) -> Tensor:
        """Return the window's tokens, or embeddings with the rows of pictures among them."""
        if self.media is None:
            return given.window
        assert given.media is not None and given.media_rows is not None  # noqa: PT018
        return self.media(self.decoder.model, given.window, given.media, given.media_rows)

    def _visible(self, given: RoundInputs, visible: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return which tokens each token sees, bool [B, W, W]: the given ones, and all of its own picture; and those of
        layers with a window, None for the same ones."""
        if given.media_blocks is None:
            return visible, None
        both = visible | same_picture(given.media_blocks, given.window)
        return (visible, both) if self.media is not None and self.media.in_windows else (both, None)

    def _seeing(self, given: RoundInputs) -> AbstractContextManager[None]:
        """Return a context in which the model gives the window's rows of pictures their positions and additions."""
        if self.media is None:
            return nullcontext()
        return self.media.seeing(self.decoder.model, given.window, given.media, given.media_rows, given.media_offsets)

    def _successors(self, given: RoundInputs, rows: Tensor, logits: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the best tokens after the rows int64 [B, R], and the tokens at the rows."""
        if not self.successors:
            return None, None
        best = logits.topk(self.successors, 2).indices if self.successors > 1 else logits.argmax(2, keepdim=True)
        places = given.n_given[:, None] - 1 + given.logit_rows
        is_there = (given.n_given > 0)[:, None] & (places < given.n_total[:, None])
        return best, torch.where(is_there, given.window.gather(1, rows), -1)


class Acceptance(nn.Module):
    """Accept drafts, and choose the bonus token after them."""

    def __init__(
        self, rule: Rule, speculative: Speculative | None = None, first_timestamp: int | None = None,
        hidden: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """rule: for deterministic drafts; speculative: for sampled drafts, in batch slots with a temperature.
        first_timestamp: of a target that writes times; hidden: tokens that no text has."""
        super().__init__()
        self.rule, self.speculative, self.first_timestamp = rule, speculative, first_timestamp
        self.hidden = tuple(hidden)

    def forward(
        self, given: RoundInputs, logits: Tensor, seen: Tensor | None, shape: Shape, nodes: TreeNodes | None
    ) -> tuple[AcceptedPath, Tensor]:
        """Return the accepted path and the bonus token, int64 [B, 1]. logits float32 [B, R, V] of node 0 .. R - 1."""
        if self.hidden:
            places = torch.arange(logits.shape[-1], device=logits.device)
            shown = [places != token for token in self.hidden]
            logits = ops.allow(logits, reduce(torch.logical_and, shown)[None, None])
        times = None
        if self.first_timestamp is not None:
            assert given.timestamps is not None
            times = Timestamps(given.timestamps, self.first_timestamp)
        if given.settings is None:
            target = greedy_target(logits, given.allowed, times)
        else:
            assert seen is not None
            assert given.uniforms is not None
            # Gathered, so that the trace sees one width and not two that happen to be equal.
            uniforms = given.uniforms.gather(1, given.logit_rows.expand(logits.shape[0], -1))
            target = sampling_target(logits, given.settings, seen, uniforms, given.allowed, times, given.adjustments)
        if self.speculative is not None:
            return self._drawn(self.speculative, given, target, shape, nodes)
        chosen = choices(target, nodes.depths if nodes else None)
        drafts, is_draft = _drafts(given, nodes)
        walk = shape.walk(self.rule(target, chosen, drafts) & is_draft, given.window, given.n_given, nodes)
        return walk, chosen.gather(1, walk.last.clamp(max=chosen.shape[1] - 1)[:, None])

    def _drawn(
        self, speculative: Speculative, given: RoundInputs, target: Target, shape: Shape, nodes: TreeNodes | None
    ) -> tuple[AcceptedPath, Tensor]:
        own = torch.arange(speculative.drafts + 1, device=target.best.device).expand(target.best.shape[0], -1)
        drafts, is_draft = _gather_nodes(given, own, own - 1 if nodes is None else nodes.parents)
        assert given.accept_uniforms is not None
        ids, probs = given.ids, given.probs
        if ids is None or probs is None:  # one deterministic child per node
            ids = drafts.tokens[:, 1:, None]
            probs = torch.ones_like(ids, dtype=torch.float32)
        trial = speculative(target, drafts.tokens, is_draft, DraftDistribution(ids, probs, given.accept_uniforms))
        greedy = self.rule(target, target.best, drafts) & is_draft
        # not `where`, which ONNX Runtime does not have for bool
        assert target.is_sampled is not None
        accepted = (target.is_sampled & trial.accepted) | (~target.is_sampled & greedy)
        walk = shape.walk(accepted[:, 1:] if nodes is None else accepted, given.window, given.n_given, nodes)
        return walk, speculative.bonus(target, trial, ids, walk.last, walk.n_accepted)


def _drafts(given: RoundInputs, nodes: TreeNodes | None) -> tuple[Drafts, Tensor]:
    """Return the drafts, each with the row of its parent, and which of them are no padding. In a chain there is a draft
    after every row, in a tree one at every node."""
    if nodes is not None:
        own = torch.arange(nodes.parents.shape[1], device=given.window.device)
        return _gather_nodes(given, own.expand(nodes.parents.shape[0], -1), nodes.parents)
    own = (given.logit_rows + 1).expand(given.window.shape[0], -1)
    return _gather_nodes(given, own, own - 1)


def _gather_nodes(given: RoundInputs, own: Tensor, parents: Tensor) -> tuple[Drafts, Tensor]:
    """Return the drafts at these nodes, and which of them are no padding. own, parents int64 [B, P]: numbers of
    nodes."""
    places = given.n_given[:, None] - 1 + own
    tokens = given.window.gather(1, places.clamp(min=0, max=given.window.shape[1] - 1))
    return Drafts(tokens, parents.clamp(min=0)), (own > 0) & (places < given.n_total[:, None])


def _preceding_tokens(given: RoundInputs, rows: Tensor, visible: Tensor) -> Tensor | None:
    """Return int64 [B, R, H + W]: the tokens up to each row; the row's own token replaces tokens that it does not
    see."""
    if given.settings is None:
        return None
    window, n_rows = given.window, rows.shape[1]
    own = window.gather(1, rows)[..., None]  # [B, R, 1]
    before = visible.gather(1, rows[..., None].expand(-1, -1, window.shape[1]))  # [B, R, W]
    history = given.settings.history[:, None, :].expand(-1, n_rows, -1)
    return torch.cat([history, torch.where(before, window[:, None, :], own)], 2)


def _nodes(walk: AcceptedPath, rows: Tensor) -> Tensor | None:
    """Return int64 [B, R]: the node before each new token; after the path, its last node."""
    if walk.nodes is None:
        return None
    depth = torch.minimum(rows.clamp(max=walk.nodes.shape[1] - 1)[None, :], walk.n_accepted[:, None])
    return walk.nodes.gather(1, depth)


def _features(taps: Taps | None, order: Tensor | None) -> Tensor | None:
    """Return the features float32 [B, W, F] in the order of the path."""
    if taps is None:
        return None
    features = taps.features()
    return features if order is None else features.gather(1, order[..., None].expand(-1, -1, features.shape[2]))


def _gather_path(rows: Tensor, order: Tensor | None) -> Tensor:
    """Return rows [B, G, W, D] in the order of the path; an accepted chain is already a prefix of the window."""
    if order is None:
        return rows
    return rows.gather(2, order[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3]))
