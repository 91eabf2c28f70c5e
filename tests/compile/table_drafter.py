"""A drafter whose next token depends on the last one alone: its logits are rows of a table."""

import itertools
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from speccompile.compiler.lower.compose import STEP
from speccompile.compiler.lower.signatures import draft_graph
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.prove.schedule import Schedule, windows
from speccompile.compiler.prove.schedule_runs import Outputs
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.draft.children import GreedyChildren, SampledChildren, levels
from speccompile.compiler.step.sampling import Settings
from speccompile.contract import Graph
from speccompile.tree import Tree


class TableDrafter(Drafter):
    """table float32 [V, V]: logits after each token. Draws among `candidates` tokens; takes the best where it is 0."""

    shape: Tree

    def __init__(self, table: Tensor, tree: Tree, candidates: int = 0) -> None:
        super().__init__()
        self.table, self.shape, self.tokens, self.candidates = table, tree, tree.drafts, candidates

    def states(self) -> list[State]:
        return []

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        children = SampledChildren(accepted, self.candidates) if self.candidates else GreedyChildren()
        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        drafts: list[Tensor] = []
        for level in levels(self.shape):
            tokens = torch.cat([bonus, *drafts], 1)[:, list(level.nodes)]
            drafts.append(children.choose(self.table[tokens], level, drafts))
        n_total = torch.where(accepted.n_path > 0, 1 + self.tokens, 1)
        drafted = Drafted(torch.cat([bonus, *drafts], 1), n_total, [])
        if isinstance(children, SampledChildren):
            ids, probs = children.table(self.tokens)
            drafted = drafted._replace(ids=ids, probs=probs)
        return drafted

    def teach(self, fed: DrafterInputs, drafts: list[int]) -> np.ndarray:
        """Return the logits after the bonus token and each draft, as a teacher gives them."""
        return self.table[[fed.known[-1], *drafts]].numpy()


def settings(batch: int, **changes: float) -> Settings:
    """Return the same in every row: temperature 1 and no filter, but for the changes. History is token 0."""
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0} | changes
    rows = {n: torch.full((batch,), v, dtype=torch.int64 if n == "top_k" else torch.float32) for n, v in values.items()}
    return Settings(**rows, history=torch.zeros(batch, 1, dtype=torch.int64))


def run(drafter: TableDrafter, script: Schedule, *, fused: bool = False) -> tuple[Graph, Outputs]:
    """Return the contract of the drafter's graph, and what it gives over a script, with no states behind the text.

    fused: as in a `step`, which accepts one draft more in every row, and whose bonus tokens are the text's plus one.
    """
    graph = draft_graph(drafter, len(script.texts))
    graph = replace(graph, name=STEP) if fused else graph
    outputs: Outputs = []
    for window in windows(script, [graph]):
        given = {tensor.name: torch.tensor(window.input(tensor)) for tensor in graph.inputs}
        if fused:
            rows = torch.arange(len(script.texts))
            given["n_path"] = rows + 1 if window.drafted else given["n_path"]
            bonus = rows, given["n_path"]
            given["path"][bonus] = (given["path"][bonus] + 1) % len(drafter.table)
        own = Settings(*(given[name] for name in Settings._fields)) if drafter.candidates else None
        path, n_path, length = (given[name] for name in ("path", "n_path", "length"))
        accepted = Accepted(path, n_path, length, settings=own, uniforms=given.get("draft_uniforms"))
        drafted = drafter(accepted, [])
        found = {"next_window": drafted.window, "next_total": drafted.n_total}
        if drafter.candidates:
            found |= {"next_ids": drafted.ids, "next_probs": drafted.probs}
        if fused:
            found |= {"path": path, "n_path": n_path}
        outputs.append({name: value.numpy() for name, value in found.items()})
    return graph, [*outputs[: len(script.widths)], {}, *outputs[len(script.widths) :]]


def best_nodes(table: np.ndarray, bonus: int, depth: int, top_k: int, n_nodes: int) -> list[tuple[int, ...]]:
    """Return paths of the nodes that EAGLE-2 keeps, in plain Python, the best first."""
    logs = table - np.log(np.exp(table).sum(1, keepdims=True))
    scores: dict[tuple[int, ...], float] = {(): 0.0}
    front = [()]
    for _ in range(depth):
        level = {}
        for path, token in itertools.product(front, range(table.shape[1])):
            row = logs[path[-1] if path else bonus]
            if token in np.argsort(-row)[:top_k]:
                level[*path, token] = scores[path] + row[token]
        scores |= level
        front = sorted(level, key=level.__getitem__)[-top_k:]
    del scores[()]
    return sorted(scores, key=lambda path: -scores[path])[:n_nodes]
