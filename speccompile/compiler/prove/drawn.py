"""Check sampled drafts: their distribution against transformers' logits processors, and the draws themselves."""

from dataclasses import replace

import numpy as np

from speccompile.bundle.sampling import SETTINGS, SamplingParams
from speccompile.compiler.prove.filters import EDGE
from speccompile.compiler.prove.processors import probabilities
from speccompile.compiler.prove.reference import Logits
from speccompile.compiler.prove.schedule import ScheduledWindow
from speccompile.compiler.prove.tolerance import TOLERANCE
from speccompile.errors import ProofError
from speccompile.runtime.devices.engine import Array
from speccompile.tree import Tree

ROUNDING = 1e-5
"""Maximum distance of a cumulated probability from the uniform number to which it is compared. float32."""
HINT = "the graph draws from another distribution than the drafter's: please report it with the recipe"


def check_drawn(
    where: str,
    node: int,
    logits: Logits,
    window: ScheduledWindow,
    outputs: dict[str, Array],
    row: int,
    path: list[int],
    tree: Tree,
    arithmetic: str,
) -> None:
    """Check the candidates of a node, their probabilities and the children drawn among them. Raise ProofError.

    logits: transformers' after the node, float32 [V]; path: the drafts up to it; arithmetic: of the graph's logits, a
    key of `TOLERANCE`.
    """
    values, n_path = window.values, window.fed[row]
    seen = [*values["history"][row].tolist(), *values["path"][row, : n_path + 1].tolist(), *path]
    sampling = SamplingParams(**{name: values[name][row].item() for name in SETTINGS})
    temperature = sampling.temperature
    sampling = replace(sampling, temperature=temperature or 1.0)
    ids, probs = outputs["next_ids"][row, node], outputs["next_probs"][row, node].astype(np.float64)
    place = f"{where}, node {node}"
    largest = max(float(np.abs(logits[np.isfinite(logits)]).max()), 1.0)
    tolerance = 2 * TOLERANCE[arithmetic] * largest / sampling.temperature
    _check_best(place, ids, probabilities(logits, seen, _unfiltered(sampling)), tolerance)
    _check_probs(place, ids, probs, logits, seen, sampling, tolerance)

    children = [int(outputs["next_window"][row, child]) for child in tree.children[node]]
    if temperature == 0:
        expected = ids[: len(children)].tolist()
        if children != expected:
            raise ProofError(f"{place}: children {children} at temperature 0, expected {expected}", hint=HINT)
        return
    uniforms = [float(values["draft_uniforms"][row, child - 1]) for child in tree.children[node]]
    _check_draws(place, children, uniforms, ids.tolist(), probs)


def _unfiltered(sampling: SamplingParams) -> SamplingParams:
    return SamplingParams(temperature=sampling.temperature, repetition_penalty=sampling.repetition_penalty)


def _check_best(place: str, ids: Array, whole: Array, tolerance: float) -> None:
    """Check that the candidates are distinct, the most probable of all tokens, and the best is first."""
    others = np.delete(whole, ids)
    ordered = np.log(np.append(whole[ids], others.max(initial=0) or whole[ids[-1]]))
    if len(set(ids.tolist())) < len(ids) or np.diff(ordered).max() > tolerance:
        raise ProofError(f"{place}: its candidates {ids.tolist()} are not the best tokens in their order", hint=HINT)


def _check_probs(
    place: str, ids: Array, probs: Array, logits: Logits, seen: list[int], sampling: SamplingParams, tolerance: float
) -> None:
    """Check that the candidates' probabilities are transformers', restricted to them, with a tolerance at a filter's
    edge."""
    restricted = np.full_like(logits, -np.inf)
    restricted[ids] = logits[ids]
    differences = []
    for edge in (0.0, EDGE, -EDGE):
        near = replace(sampling, top_p=min(1.0, sampling.top_p + edge), min_p=sampling.min_p * (1 - edge))
        differences.append(float(np.abs(probabilities(restricted, seen, near)[ids] - probs).max()))
    if not min(differences) <= tolerance:
        raise ProofError(
            f"{place}: its candidates' probabilities differ by {differences[0]:.3g} from transformers' at {sampling}",
            hint=HINT,
        )


def _check_draws(place: str, children: list[int], uniforms: list[float], ids: list[int], probs: Array) -> None:
    """Check that each child is the candidate selected by its uniform number, among those not drawn before it."""
    left = probs.copy()
    for child, uniform in zip(children, uniforms, strict=True):
        if left.sum() <= 0:
            return  # nothing is left: any token is correct
        index = ids.index(child) if child in ids else None
        above = np.cumsum(left) / left.sum()
        is_drawn = index is not None and left[index] > 0
        if not is_drawn or not above[index] - left[index] / left.sum() - ROUNDING <= uniform <= above[index] + ROUNDING:
            raise ProofError(f"{place}: token {child} is drawn by {uniform:.6g} from {_named(ids, left)}", hint=HINT)
        left[index] = 0


def _named(ids: list[int], left: Array) -> str:
    return str({token: round(float(p), 6) for token, p in zip(ids, left, strict=True) if p > 0})
