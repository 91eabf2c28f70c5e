"""Whether a token's logits depend on the window that it rides in, found out where the bundle runs.

A build proves that speculation changes no token, on the machine that builds. Which of a library's kernels computes a
product depends on the processor, and on the width of the window too; where those round differently, speculation may
change a token. So the first time that an engine is opened on a processor its target reads the same tokens in windows of
every width that decoding uses, and the logits must be equal, bit for bit. The answer is kept.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speccompile import native
from speccompile.bundle.hashes import HASHES, hash_file
from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.contract import BATCH, COMPONENTS, has_recurrent_states
from speccompile.machine.system import processor
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.devices.invariance_cache import InvarianceCache
from speccompile.runtime.rounds.bound_graphs import BoundGraphs
from speccompile.runtime.rounds.host_drafts import needs_proposer

FORMAT = 1
"""Version of what is kept."""

PREFIX = 21
"""Tokens that are committed before the windows: no multiple of what a vector holds."""

NEUTRAL = {"top_p": 1.0, "repetition_penalty": 1.0, "uniforms": 0.5, "accept_uniforms": 0.5, "draft_uniforms": 0.5}
"""Settings that must be something."""


@dataclass(frozen=True)
class WindowInvariance:
    """widths: of the windows that were compared with windows of one; differing: those whose logits were others;
    largest: difference of two logits, as a part of the largest logit."""

    widths: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    largest: float = 0.0

    @property
    def exact(self) -> bool:
        return not self.differing

    @property
    def reason(self) -> str:
        """What was found, in words."""
        if not self.widths:
            return "there is no window but one of a single token"
        if self.exact:
            return f"windows of {_some(self.widths)} tokens give the logits of single tokens, bit for bit"
        return (
            f"windows of {_some(self.differing)} tokens give other logits than single tokens, by up to "
            f"{self.largest:.1g} of the largest"
        )


def _some(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return " and ".join(map(str, numbers)) if len(numbers) < 3 else ", ".join(map(str, numbers))


def compare_windows(engine: Engine, manifest: Manifest) -> WindowInvariance:
    """Give the target the same tokens in windows of every width that decoding uses, from the same committed ones, in
    all rows of the batch at once, and in windows of one, row by row where rows may be run alone.

    A chain's row i must have the logits of token i. In a tree all drafts are one token, so a node's logits must be
    those behind some number of them: how deep it stands. Before every window the states are what they are behind the
    same committed ones.
    """
    if manifest.tokens == 0:
        return WindowInvariance()
    rounds = BoundGraphs(engine, manifest)
    _write_neutral_inputs(engine, manifest)
    is_chain = manifest.tree == "chain"
    depth = min(manifest.depth if not is_chain else manifest.tokens, manifest.max_length - 1)
    prefix = min(PREFIX, manifest.max_length - depth - 1, manifest.prefill_chunk)
    random = np.random.default_rng(0)
    tokens = random.integers(0, manifest.vocabulary_size, (manifest.batch_size, prefix + manifest.tokens + 1))
    if not is_chain:
        tokens[:, prefix + 1 :] = tokens[:, prefix + 1 : prefix + 2]

    def commit_prefix() -> None:
        if prefix:
            _read(rounds, tokens[:, :prefix], 0, "step", given=prefix)

    commit_prefix()
    text = tokens[:, prefix:]
    single = np.concatenate([_read_alone(rounds, text[:, i : i + 1], prefix + i) for i in range(depth + 1)], 1)
    has_all_widths = is_chain or needs_proposer(manifest.graphs, manifest.tokens)
    widths = range(2, manifest.tokens + 2) if has_all_widths else [manifest.tokens + 1]
    differing, largest = [], 0.0
    moves_on = has_recurrent_states(manifest.graphs, COMPONENTS[0])
    for width in widths:
        if moves_on:
            commit_prefix()
        window = _read(rounds, text[:, :width], prefix, "step")
        expected, got = single[:, :width], window[:, : depth + 1]
        if not is_chain:
            expected, got = _at_depths(single, window), window
        if expected.tobytes() != got.tobytes():
            differing.append(width)
            largest = max(largest, float(np.abs(expected - got).max() / max(np.abs(expected).max(), 1e-30)))
    return WindowInvariance(tuple(widths), tuple(differing), largest)


def _write_neutral_inputs(engine: Engine, manifest: Manifest) -> None:
    """Give inputs beside the tokens values that every graph can take."""
    sizes = {BATCH: manifest.batch_size, "logit_rows": 1, "history": 1, "allowed": 1}
    for graph in manifest.graphs:
        for tensor in graph.inputs:
            if tensor.role == "io" and tensor.name in NEUTRAL and tensor.name != "uniforms":
                engine.host_view(tensor.buffer, tensor.concrete_shape(sizes))[:] = NEUTRAL[tensor.name]
            elif tensor.name == "parents":
                engine.host_view("parents", tensor.concrete_shape(sizes))[:] = _probe_tree(
                    manifest.tokens, manifest.depth
                )


def _probe_tree(nodes: int, depth: int) -> list[int]:
    """Parents of a root and so many nodes, by depth: one branch of this depth, all others at the root."""
    at_root = nodes - (depth - 1)
    return [-1, *[0] * at_root, *[1, *range(at_root + 1, nodes)][: depth - 1]]


def _read_alone(rounds: BoundGraphs, window: Array, length: int) -> Array:
    """Logits [B, 1, V] of single tokens int64 [B, 1], of each row in a run of its own where an engine has such."""
    runs = (
        [range(row, row + 1) for row in range(rounds.batch)] if rounds.supports_batch_slices else [range(rounds.batch)]
    )
    return np.concatenate([_read(rounds, window, length, "verify", rows=rows) for rows in runs])


def _read(
    rounds: BoundGraphs, window: Array, length: int, graph: str, given: int = 1, rows: range | None = None
) -> Array:
    """Logits [rows, n, V] of a window int64 [B, W]: of its last token where all are given, else of every token.

    graph: that decoding would run, where the bundle has it. rows: of the batch, by default all.
    """
    width = window.shape[1]
    n_logits = 1 if given > 1 or width == 1 else width
    fused = graph == "step" and "step" in rounds.graphs
    forward = rounds.forward(width, n_logits, 1, fused=fused, logprobs=True, rows=rows)
    if any(tensor.name == "uniforms" for tensor in rounds.graphs["verify"].inputs):
        rounds.engine.host_view("uniforms", (rounds.batch, n_logits))[:] = NEUTRAL["uniforms"]
    forward.window[:] = window
    rounds.n_given[:], rounds.n_total[:], rounds.length[:] = given, width, length
    forward.verify()
    assert forward.logits is not None
    return forward.logits.copy()


def _at_depths(single: Array, window: Array) -> Array:
    """For every node's logits in a window those behind as many drafts, where there are any that are equal; else the
    nearest ones."""
    found = np.empty_like(window)
    for row in range(len(window)):
        for node, logits in enumerate(window[row]):
            distances = np.abs(single[row] - logits).max(axis=-1)
            found[row, node] = single[row, int(distances.argmin())]
    return found


def cached_invariance(folder: Path, entry: EngineEntry, threads: int | None) -> WindowInvariance | None:
    """What was found out on this machine before; None where nothing was."""
    found = InvarianceCache().read(_key(folder, entry, threads)) if _is_kept(folder) else None
    with suppress(TypeError, KeyError):
        if found is not None:
            return WindowInvariance(tuple(found["widths"]), tuple(found["differing"]), float(found["largest"]))
    return None


def check_invariance(folder: Path, entry: EngineEntry, engine: Engine, manifest: Manifest) -> WindowInvariance:
    """Compare the windows of an engine of the bundle in `folder`, and keep what was found."""
    found = compare_windows(engine, manifest)
    if _is_kept(folder):
        InvarianceCache().store(_key(folder, entry, engine.threads), asdict(found))
    return found


def warn_of(found: WindowInvariance, engine: str) -> None:
    """Say so where an engine is not exact here."""
    if found.exact:
        return
    hint = (
        "generate with --autoregressive where that matters, or build float32"
        if native.library()
        else "install the kernels: `speccompile doctor` says how"
    )
    LOGGER.warning(
        "engine %s is not exact on this processor, so speculation may change tokens: %s\nhint: %s",
        engine, found.reason, hint,
    )  # fmt: skip


def _is_kept(folder: Path) -> bool:
    """Nothing is of a folder without hashes, as while a bundle is built."""
    return (folder / HASHES).is_file()


def _key(folder: Path, entry: EngineEntry, threads: int | None) -> dict[str, Any]:
    """Everything that decides which kernels run."""
    from onnxruntime import __version__ as onnxruntime

    library = native.library()
    return {
        "format": FORMAT,
        "processor": processor(),
        "onnxruntime": onnxruntime,
        "kernels": [native.kernels(), hash_file(library) if library else ""],
        "bundle": hash_file(folder / HASHES),
        "engine": entry.name,
        "threads": None if library else threads,  # on which the project's kernels do not depend
    }
