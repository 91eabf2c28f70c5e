"""Traits of the graphs of a round on which a schedule of their proof depends."""

from collections.abc import Iterable, Sequence

from speccompile.contract import COMPONENTS, Graph, has_recurrent_states, vocabulary_size


def all_given(graphs: Sequence[Graph]) -> bool:
    """Return whether these graphs receive every token of the text as given, and compute only the last one's logits."""
    return {graph.name for graph in graphs} != {"verify"} or has_tree(graphs) or carries(graphs)


def allowed_width(graphs: Iterable[Graph], step: int) -> int:
    """Return the width of a window's `allowed`: all tokens in every second window, else 1, which allows everything."""
    return vocabulary_size(graphs) if step % 2 else 1


def pairs_next(graphs: Iterable[Graph]) -> bool:
    """Return whether a drafter pairs what the target computed at a token with the next one."""
    return any(tensor.name == "pairs" for graph in graphs for tensor in graph.inputs)


def has_tree(graphs: Iterable[Graph]) -> bool:
    """Return whether the drafts are a tree."""
    return any(tensor.name == "nodes" for graph in graphs for tensor in graph.outputs)


def carries(graphs: Sequence[Graph]) -> bool:
    """Return whether a component has recurrent states."""
    return any(has_recurrent_states(graphs, part) for part in COMPONENTS)
