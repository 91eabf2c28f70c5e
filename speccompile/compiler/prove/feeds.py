"""Inputs of a proof's graphs besides tokens and counts: settings, random numbers, draft distributions."""

from typing import Any

import numpy as np

from speccompile.bundle import sampling
from speccompile.bundle.media import MEDIA_INPUTS
from speccompile.contract import ADAPTER_PREFIX, Tensor
from speccompile.runtime.devices.engine import Array
from speccompile.tree import Tree

SETTINGS: tuple[dict[str, float], ...] = (
    {},  # greedy
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5, "repetition_penalty": 1.3},
    {"temperature": 1.3, "top_p": 0.7, "min_p": 0.02},
)
"""Sampling settings of windows, in turn."""

_OFF = {name: getattr(sampling.GREEDY, name) for name in sampling.SETTINGS}


def make_input(tensor: Tensor, shape: tuple[int, ...], step: int, path: Array, tree: Tree) -> Array:
    """Return an input by its name and shape, the same in every run. step: number of the window; path int64 [B, W + 1]:
    its tokens; tree: of its drafts, if any. Raise KeyError for an input that the contract does not have."""
    name, random = tensor.buffer, np.random.Generator(np.random.Philox([step, len(tensor.buffer)]))
    if name in _OFF:
        return np.full(shape, (_OFF | SETTINGS[step % len(SETTINGS)])[name])
    makers: dict[str, Any] = {
        "uniforms": lambda: random.random(shape, np.float32),
        "accept_uniforms": lambda: random.random(shape, np.float32),
        "draft_uniforms": lambda: random.random(shape, np.float32),
        "adapter": lambda: np.zeros(shape, np.int64),  # the reference has none
        **dict.fromkeys(MEDIA_INPUTS, lambda: np.zeros(shape)),  # texts: pictures have a proof of their own
        "allowed": lambda: _allowed(shape, random),
        "timestamps": lambda: np.full(shape, step % 2 == 1),
        "features": lambda: random.standard_normal(shape, np.float32),
        "successors": lambda: np.resize(path, shape),
        "row_tokens": lambda: np.resize(path, shape),
        "history": lambda: np.resize(path[:, :1], shape),
        "adjusted": lambda: np.broadcast_to(np.arange(shape[-1]), shape),
        "biases": lambda: step % 2 * random.standard_normal(shape, np.float32),
        "penalties": lambda: step % 2 * -random.random(shape, np.float32),
        "parents": lambda: np.broadcast_to(np.array(tree.parents), shape),
        "draft_ids": lambda: _candidates(shape, path, tree),
        "draft_probs": lambda: random.dirichlet(np.ones(shape[2]), shape[:2]).astype(np.float32),
    }
    made: Array = np.zeros(shape) if name.startswith(ADAPTER_PREFIX) else makers[name]()
    return made


def _allowed(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Return bool: most tokens, the first among them in every row; true if one value stands for all tokens."""
    found: Array = random.random(shape) < 0.8
    found[..., 0] = True
    return found


def _candidates(shape: tuple[int, ...], path: Array, tree: Tree) -> Array:
    """Return int64 [B, N, C]: distinct tokens, among them the children of each node if the window has them all."""
    batch, nodes, count = shape
    ids = np.empty(shape, np.int64)
    for row in range(batch):
        for node in range(nodes):
            drafts = [int(path[row, child]) for child in tree.children[node] if child < path.shape[1] - 1]
            others = range(max([*drafts, 0]) + count + 1)
            ids[row, node] = list(dict.fromkeys([*drafts, *others]))[:count]
    return ids
