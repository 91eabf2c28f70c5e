"""Tree of a round of Lookahead: a window of draft tokens at several levels, and n-grams of the pool."""

from dataclasses import dataclass

from speccompile.tree import Tree, from_paths

WINDOW, LEVEL, GUESSES = 7, 5, 7
"""Defaults: the authors' values for models of 7 B."""


@dataclass(frozen=True)
class Layout:
    """Nodes of a round. tree: of all tokens. window: the node at every level and column, [N - 1][W]; the root is at
    level 0, column 0. guesses: the nodes of every n-gram, [G][N - 1]."""

    tree: Tree
    window: tuple[tuple[int, ...], ...]
    guesses: tuple[tuple[int, ...], ...]


def lay_out(window: int, level: int, guesses: int) -> Layout:
    """Return the layout of a window of W >= 2 columns, n-grams of N tokens, and G n-grams of the pool.

    Level 0 is a chain from the root, its first column. At higher levels, column i follows column i of the level below.
    The n-grams follow the root. So the tree has the attention mask of Fu et al. (2024), and positions equal depths. It
    has (W - 1) + (N - 2) W + G (N - 1) drafts.
    """
    chain = [(0,) * column for column in range(window)]
    columns = []
    for column, path in enumerate(chain):
        has_next = column < window - 1  # the next column is its first child
        columns.append([path + (int(has_next),) * (up > 0) + (0,) * (up - 1) for up in range(level - 1)])
    first = 1 + (level > 2)
    ngrams = [[(first + guess,) + (0,) * behind for behind in range(level - 1)] for guess in range(guesses)]
    tree = from_paths([path for each in (*columns, *ngrams) for path in each if path])
    place = {(): 0} | {tuple(path): node for node, path in enumerate(tree.paths(), 1)}
    rows = zip(*columns, strict=True)
    return Layout(
        tree,
        tuple(tuple(place[path] for path in row) for row in rows),
        tuple(tuple(place[path] for path in ngram) for ngram in ngrams),
    )
