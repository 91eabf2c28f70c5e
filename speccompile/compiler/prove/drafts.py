"""Check drafts against eager transformers by teacher forcing: each draft is the drafter's choice after those before.

A case is one batch slot of one window. The latest are checked first: their caches hold all earlier commits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from speccompile.compiler.models.sourced import read_source
from speccompile.compiler.prove.drawn import check_drawn
from speccompile.compiler.prove.reference import Logits, sequence_logits
from speccompile.compiler.prove.schedule import ScheduledWindow
from speccompile.compiler.prove.schedule_runs import Recording
from speccompile.compiler.prove.tolerance import QUANTIZATION_TOLERANCE, TOLERANCE, arithmetic_over
from speccompile.errors import ProofError
from speccompile.runtime.devices.engine import Array
from speccompile.tree import Tree, merged_indices


@dataclass(frozen=True)
class PicturedText:
    """Pictures in a text, as transformers has them. rows float32 [n, H]: of each token, zeros but where is_row bool [n]
    says that a picture's row stands. positions int64 [3, n + m]: on three axes, of the text's tokens and those that
    follow; None where a token has one position. fill: (text, caches) -> fills caches of transformers."""

    rows: Array
    is_row: Array
    positions: Array | None
    fill: Callable[[Sequence[int], Any], Any]


@dataclass(frozen=True)
class DrafterInputs:
    """Inputs of a drafter so far. known: the text and the bonus token. For drafters that read features, of every
    committed token: features float32 [n, F], and the token that followed it when it was committed, following. source:
    of a drafter with an encoder. pictures: in the text, None without any."""

    known: list[int]
    features: Array | None = None
    following: Sequence[int] = ()
    source: Sequence[int] | None = None
    pictures: PicturedText | None = None


ReferenceLogits = Callable[[DrafterInputs, list[int]], Logits]
"""(inputs, drafts) -> float32 [1 + drafts, V]: the logits after the bonus token and after each draft, -inf for tokens
that the drafter does not have."""

CaseFilter = Callable[["Case"], "Case | None"]
"""A case -> the part that the drafter drafted itself, None without such a part. Raises ProofError for an error in the
rest."""

Confidence = Callable[[DrafterInputs, list[int]], Array]
"""(inputs, drafts) -> float32 [1 + drafts]: confidence of a drafter's confidence head in the draft after each of
them."""

FORWARDS = 96
"""Maximum number of eager forwards of a proof, each over a whole text. A window that has begun is finished."""

TRACED = "float32"
TINY = 1e-300
"""Lower bound of a probability before its logarithm."""
HINT = "the graph computes something else than the drafter: please report it with the recipe"


@dataclass(frozen=True)
class Case:
    """One batch slot of one window. outputs: of the whole window; tokens: of the nodes, the bonus first. arithmetic:
    of the graph's logits, a key of `QUANTIZATION_TOLERANCE`."""

    where: str
    row: int
    fed: DrafterInputs
    window: ScheduledWindow
    outputs: dict[str, Array]
    arithmetic: str = TRACED

    @property
    def tokens(self) -> list[int]:
        found: list[int] = self.outputs["next_window"][self.row].tolist()
        return found


def teacher(model: nn.Module) -> ReferenceLogits:
    """Return the logits function of transformers eager."""

    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        read_source(model, fed.source)
        return sequence_logits(model, [*fed.known, *drafts])[-1 - len(drafts) :]

    return logits


def cases(driven: Recording) -> Iterator[Case]:
    """Yield the drafts of every batch slot that was fed, the latest first. Raise ProofError for a wrong bonus token,
    and for an idle batch slot with drafts."""
    pairs, arithmetic = _paired(driven), arithmetic_over(TRACED, [driven.graph])
    for number, (step, window, outputs) in reversed(list(enumerate(driven.runs()))):
        for row, (n, start) in enumerate(zip(window.fed, window.committed, strict=True)):
            where = f"{driven.graph.name}, {driven.level}, window {step}, row {row}"
            known = [*driven.script.texts[row][:start], *window.values["path"][row, : n + 1].tolist()]
            source = driven.script.source(row)
            fed = DrafterInputs(known, *pairs[number][row]) if pairs else DrafterInputs(known, source=source)
            case = Case(where, row, fed, window, outputs, arithmetic)
            if n == 0:
                check_equal(case, "the number of tokens in the next window", int(case.outputs["next_total"][row]), 1)
            else:
                check_equal(case, "the next window's first token", case.tokens[0], known[-1])
                yield case


def _paired(driven: Recording) -> list[list[tuple[Array, list[int]]]]:
    """Return for every window and batch slot the features of all committed tokens, and the tokens after them at their
    commit, which in the middle of a text are the target's own prediction. Empty without features."""
    found: list[list[tuple[Array, list[int]]]] = []
    for _, window, outputs in driven.runs():
        features = (driven.links[len(found)] if driven.links else outputs).get("features")
        if features is None:
            return []
        before = found[-1] if found else [(features[row, :0], []) for row in range(len(window.fed))]
        rows = []
        for row, (n, start) in enumerate(zip(window.fed, window.committed, strict=True)):
            kept, following = before[row] if n else (before[row][0], before[row][1])
            end = start if n else len(following)
            path = window.values["path"][row, 1 : n + 1].tolist()
            rows.append((np.concatenate([kept[:end], features[row, :n]]), [*following[:end], *path]))
        found.append(rows)
    return found


def check_tree(
    driven: Recording,
    teachers: Sequence[ReferenceLogits],
    tree: Tree,
    max_length: int,
    fallback: float | None = None,
    late: int = 0,
    sure: Confidence | None = None,
    view: CaseFilter | None = None,
) -> dict[str, Any]:
    """Check the children of every node of a constant tree, a chain included: the best tokens, in the order of their
    rank, or, if the graph returns distributions, correct draws. Raise ProofError.

    teachers: one, or one for each of several drafters that draft this tree and are merged. max_length: of a sequence;
    drafts beyond it mean nothing. fallback: the probability below which a draft ends a chain; late: number of drafts
    that are kept from that draft on, 0 or 1. sure: source of that probability, by default the best token's own. view:
    selects the drafter's own drafts if there are others.
    """
    places = [[0, *its] for its in merged_indices([tree] * len(teachers))]
    compared = spent = 0
    for case in filter(None, map(view, cases(driven)) if view else cases(driven)):
        if spent >= FORWARDS:
            break
        n_drafts = int(case.outputs["next_total"][case.row]) - 1
        if fallback is None:
            check_equal(case, "the number of drafts", n_drafts, tree.drafts * len(teachers))
        elif n_drafts < late:
            check_equal(case, "the number of drafts", n_drafts, late)
        for each, its in zip(teachers, places, strict=True):
            tokens = [case.tokens[place] for place in its]
            confidence = None if sure is None else sure(case.fed, tokens[1 : tree.drafts])
            for logits in lineages(each, case.fed, tokens, tree, max_length):
                spent += 1
                for node, row in logits:
                    compared += check_children(case, node, row, tokens, tree)
                    if fallback is not None and node + late < tree.drafts:
                        probability = softmax(row).max() if confidence is None else confidence[node]
                        _check_stop(case, node + late, row, n_drafts, fallback, float(probability))
    return report(driven, compared)


def lineages(
    each: ReferenceLogits, fed: DrafterInputs, tokens: list[int], tree: Tree, max_length: int
) -> Iterator[list[tuple[int, Logits]]]:
    """Yield (node, its logits [V]) of every node whose children mean something, those on one path from the root
    together."""
    left = [n for n, its in enumerate(tree.children) if its and len(fed.known) + tree.depths[n] < max_length]
    while left:
        lineage = tree.root_paths[left[-1]]
        logits = each(fed, [tokens[node] for node in lineage[1:]])
        yield [(node, row) for node, row in zip(lineage, logits, strict=True) if node in left]
        left = [node for node in left if node not in lineage]


def check_children(case: Case, node: int, logits: Logits, tokens: list[int], tree: Tree) -> int:
    """Check the children of a node. Return the number of compared tokens."""
    children = [tokens[child] for child in tree.children[node]]
    candidates = case.outputs["next_ids"][case.row, node].tolist() if "next_ids" in case.outputs else children
    if not all(0 <= token < len(logits) for token in candidates):
        raise ProofError(
            f"{case.where}: node {node} chooses among {candidates}, expected tokens of the target, 0 to "
            f"{len(logits) - 1}",
            hint=HINT,
        )
    if "next_ids" in case.outputs:
        path = [tokens[each] for each in tree.root_paths[node][1:]]
        check_drawn(case.where, node, logits, case.window, case.outputs, case.row, path, tree, case.arithmetic)
        return int(case.outputs["next_ids"].shape[2])
    if len(set(children)) < len(children):
        raise ProofError(f"{case.where}: node {node} has the children {children}, expected different tokens", hint=HINT)
    best = np.argsort(-logits, kind="stable")[: len(children)]
    for rank, (child, expected) in enumerate(zip(children, best, strict=True)):
        margin = float(abs(logits[expected] - logits[child]))
        if not margin <= tolerance_of(case, logits):
            raise ProofError(
                f"{case.where}: child {rank} of node {node} is token {child}, transformers' is {expected}; "
                f"their logits lie {margin:.3g} apart",
                hint=HINT,
            )
    return len(children)


def _check_stop(case: Case, node: int, logits: Logits, n_drafts: int, fallback: float, probability: float) -> None:
    """Check the end of a chain: the draft after node `node` is among the window's `n_drafts` only if its confidence,
    from these logits or from a separate head, is high enough."""
    surplus = float(np.log(max(probability, TINY)) - np.log(max(fallback, TINY)))
    is_kept, tolerance = node < n_drafts, 2 * tolerance_of(case, logits)
    if node <= n_drafts and not (surplus >= -tolerance if is_kept else surplus <= tolerance):
        raise ProofError(
            f"{case.where}: draft {node + 1} is {'kept' if is_kept else 'left out'}, transformers gives it the "
            f"probability {fallback * np.exp(surplus):.3g}, and drafting stops below {fallback}",
            hint=HINT,
        )


def check_dynamic(driven: Recording, each: ReferenceLogits, depth: int, top_k: int, max_length: int) -> dict[str, Any]:
    """Check that the nodes of a dynamic tree are the best of those to which transformers' logits would expand it.

    Raise ProofError. If two nodes, of which one is expanded, are near-ties, the other nodes are not checked.
    """
    compared = spent = 0
    for case, paths in tree_cases(driven, depth, max_length):
        if spent >= FORWARDS:
            break
        compared += check_expanded(case, paths, each, depth, top_k)
        spent += 1 + (depth - 1) * top_k
    return report(driven, compared)


def check_expanded(case: Case, paths: Sequence[tuple[int, ...]], each: ReferenceLogits, depth: int, top_k: int) -> int:
    """Check a tree as `check_dynamic`. paths: tokens from the root to every draft. Return the number of compared
    nodes."""
    scores, is_clear, tolerance = _expanded_tree(each, case, depth, top_k)
    unknown = [path for path in paths if path not in scores]
    if unknown:
        if is_clear:
            raise ProofError(f"{case.where}: drafts {list(unknown[0])}, which is not among the best", hint=HINT)
        return 0
    least, wanted = min(scores[path] for path in paths), sorted(scores.values())[-len(paths)]
    if least < wanted - tolerance and is_clear:
        raise ProofError(
            f"{case.where}: keeps a node of joint probability {np.exp(least):.3g}, where the {len(paths)} best "
            f"have {np.exp(wanted):.3g} and more",
            hint=HINT,
        )
    return len(paths)


def token_paths(case: Case) -> list[tuple[int, ...]]:
    """Return the tokens from the root to every draft. Raise ProofError for parents that make no tree, and for equal
    paths."""
    parents, tokens = case.outputs["next_parents"][case.row].tolist(), case.tokens
    check_equal(case, "the number of drafts", int(case.outputs["next_total"][case.row]), len(tokens))
    if parents[0] != -1 or not all(0 <= parent < node for node, parent in enumerate(parents[1:], 1)):
        raise ProofError(
            f"{case.where}: parents {parents}, expected -1 and then nodes before their children", hint=HINT
        )
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(parents[1:], tokens[1:], strict=True):
        paths.append((*paths[parent], token))
    if len(set(paths)) < len(paths):
        raise ProofError(
            f"{case.where}: two of the drafts {sorted(paths[1:])} are one, expected different ones", hint=HINT
        )
    return paths[1:]


def tree_cases(driven: Recording, depth: int, max_length: int) -> Iterator[tuple[Case, list[tuple[int, ...]]]]:
    """Yield `cases` with their `token_paths`, but for those whose drafts of `depth` reach beyond `max_length`."""
    for case in cases(driven):
        paths = token_paths(case)
        if len(case.fed.known) + depth <= max_length:
            yield case, paths


def _expanded_tree(
    each: ReferenceLogits, case: Case, depth: int, top_k: int
) -> tuple[dict[tuple[int, ...], float], bool, float]:
    """Return the log joint probabilities of all nodes that EAGLE-2 (Li et al. 2024) considers, by their paths; whether
    the choice of expanded nodes was clear at every depth; and the possible change by rounding."""
    scores: dict[tuple[int, ...], float] = {}
    front: list[tuple[int, ...]] = [()]
    is_clear, tolerance = True, 0.0
    for _ in range(depth):
        level: dict[tuple[int, ...], float] = {}
        for path in front:
            logits = each(case.fed, list(path))[-1]
            tolerance = max(tolerance, 2 * depth * tolerance_of(case, logits))
            ordered = np.argsort(-logits, kind="stable")
            is_clear &= _margin(logits[ordered], top_k) > tolerance
            probabilities = softmax(logits)
            for token in ordered[:top_k].tolist():
                level[*path, token] = scores.get(path, 0.0) + float(np.log(max(probabilities[token], TINY)))
        scores |= level
        front = sorted(level, key=lambda path: -level[path])
        is_clear &= _margin(np.array([level[path] for path in front]), top_k) > tolerance
        front = front[:top_k]
    return scores, is_clear, tolerance


def _margin(ordered: Array, count: int) -> float:
    """Return the difference between values number `count` and `count` + 1 of `ordered`."""
    return float(ordered[count - 1] - ordered[count]) if count < len(ordered) else np.inf


def softmax(logits: Logits) -> Array:
    """Return the probabilities float64 [V]."""
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def tolerance_of(case: Case, logits: Logits) -> float:
    """Return the largest difference between two correct computations of these logits."""
    return QUANTIZATION_TOLERANCE[case.arithmetic] * max(float(np.abs(logits[np.isfinite(logits)]).max()), 1.0)


def check_equal(case: Case, what: str, got: int, expected: int) -> None:
    """Raise ProofError if they differ."""
    if got != expected:
        raise ProofError(f"{case.where}: {what} is {got}, expected {expected}", hint=HINT)


def report(driven: Recording, compared: int) -> dict[str, Any]:
    """Return the row of the proof, for `compared` compared values."""
    limit = TOLERANCE[arithmetic_over(TRACED, [driven.graph])]
    return {"graph": driven.graph.name, "level": driven.level, "values": compared, "tolerance": limit}
