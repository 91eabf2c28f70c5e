"""Check on this machine that a token's logits do not depend on the width of the verification window.

A build proves that speculation changes no token, on the machine that builds. Which kernel of a library computes a
product depends on the processor, and on the width of the window too; if these kernels round differently, speculation
may change a token. So the first time that an engine is opened on a processor, its target reads the same tokens in
windows of every width that decoding uses, and the logits must be equal, bit for bit. The result is cached.
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
from speccompile.bundle.result_cache import ResultCache
from speccompile.bundle.sampling import SAMPLING_OPTIONS
from speccompile.contract import BATCH, COMPONENTS, has_recurrent_states
from speccompile.machine.system import processor
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.rounds.bound_graphs import BoundGraphs
from speccompile.runtime.rounds.host_drafts import needs_proposer
from speccompile.runtime.rounds.source_encoder import encode_example

NAME = "checked"
"""Name of the cache of results."""

FORMAT = 1
"""Version of cached results."""

PREFIX = 21
"""Number of tokens committed before the windows: no multiple of a vector register's elements."""

NEUTRAL = {name: option.neutral for name, option in SAMPLING_OPTIONS.items() if option.neutral} | dict.fromkeys(
    ("uniforms", "accept_uniforms", "draft_uniforms"), 0.5
)
"""Neutral values of inputs that have no valid zero."""


@dataclass(frozen=True)
class WindowInvariance:
    """Result of the check. widths: widths of the windows that were compared with windows of one token; differing: those
    with other logits; largest: largest difference of two logits, as a share of the largest logit."""

    widths: tuple[int, ...] = ()
    differing: tuple[int, ...] = ()
    largest: float = 0.0

    @property
    def exact(self) -> bool:
        return not self.differing

    @property
    def reason(self) -> str:
        """Return the result in words."""
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
    """Compare the target's logits in windows of every width that decoding uses with those in windows of one token. All
    windows follow the same committed tokens. Wide ones run in all batch slots at once, those of one token slot by slot
    if the engine supports batch slices.

    Row i of a chain must have the logits of token i. In a tree all drafts are one token, so a node's logits must be
    those after as many drafts as its depth. Before every window the states are those after the committed tokens.
    """
    if manifest.tokens == 0:
        return WindowInvariance()
    rounds = BoundGraphs(engine, manifest)
    write_neutral_inputs(engine, manifest)
    encode_example(engine, manifest)
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


def write_neutral_inputs(engine: Engine, manifest: Manifest) -> None:
    """Give all inputs except the tokens values that every graph can take."""
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
    """Return the parents of a root and `nodes` nodes: one branch of this depth, and all other nodes at the root."""
    at_root = nodes - (depth - 1)
    return [-1, *[0] * at_root, *[1, *range(at_root + 1, nodes)][: depth - 1]]


def _read_alone(rounds: BoundGraphs, window: Array, length: int) -> Array:
    """Return logits [B, 1, V] of single tokens int64 [B, 1], each slot in its own run if the engine supports batch
    slices."""
    runs = (
        [range(row, row + 1) for row in range(rounds.batch)] if rounds.supports_batch_slices else [range(rounds.batch)]
    )
    return np.concatenate([_read(rounds, window, length, "verify", rows=rows) for rows in runs])


def _read(
    rounds: BoundGraphs, window: Array, length: int, graph: str, given: int = 1, rows: range | None = None
) -> Array:
    """Return logits [rows, n, V] of a window int64 [B, W]: of its last token if all tokens are certain, else of every
    token.

    graph: the graph that decoding would run, if the bundle has it. rows: batch slots, by default all.
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
    """Return, for every node's logits in a window, the equal logits of single tokens; without equal ones, the
    nearest."""
    found = np.empty_like(window)
    for row in range(len(window)):
        for node, logits in enumerate(window[row]):
            distances = np.abs(single[row] - logits).max(axis=-1)
            found[row, node] = single[row, int(distances.argmin())]
    return found


def cached_invariance(key: dict[str, Any] | None) -> WindowInvariance | None:
    """Return the result that this machine has cached for an engine, or None. key: its `engine_key`."""
    found = ResultCache.named(NAME).read(key) if key is not None else None
    with suppress(TypeError, KeyError):
        if found is not None:
            return WindowInvariance(tuple(found["widths"]), tuple(found["differing"]), float(found["largest"]))
    return None


def check_invariance(key: dict[str, Any] | None, engine: Engine, manifest: Manifest) -> WindowInvariance:
    """Compare the windows of an engine, and cache the result. key: the engine's `engine_key`."""
    found = compare_windows(engine, manifest)
    if key is not None:
        ResultCache.named(NAME).store(key, asdict(found))
    return found


def warn_of(found: WindowInvariance, engine: str) -> None:
    """Warn if an engine is not exact on this machine."""
    if found.exact:
        return
    hint = (
        # what is left to the library is so in every precision
        "generate with --autoregressive (autoregressive=True) where that matters"
        if native.library()
        else "install the kernels: `speccompile doctor` says how"
    )
    LOGGER.warning(
        "engine %s is not exact on this processor, so speculation may change tokens: %s\nhint: %s",
        engine, found.reason, hint,
    )  # fmt: skip


def engine_key(folder: Path, entry: EngineEntry, threads: int | None) -> dict[str, Any] | None:
    """Return everything that decides which kernels run in a CPU engine of the bundle in `folder`.

    Return None where nothing is cached: for a folder without hashes, as while a bundle is built, and for GPUs, whose
    clocks the key does not tell.
    """
    if entry.provider != "cpu" or not (folder / HASHES).is_file():
        return None
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
