"""Reference: Lookahead's two branches (section 3 of Fu et al. 2024), in lists and a dictionary."""

from collections.abc import Sequence

from speccompile.compiler.prove.plain_drafts import PlainDrafter, PlainDrafts, SlotRound
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.lookahead.nodes import lay_out

LISTS = 4096
"""Number of lists in the pool, which tokens share."""

Pool = dict[int, list[list[int]]]
"""Number of a list -> its n-grams, the latest first."""


def drafter(context: DrafterContext) -> PlainDrafter:
    """Return the drafter of the planned window."""
    window = context.drafter.lookahead
    assert window is not None, "the plan decides it"
    return Windows(*window, context.shape.batch_size)


class Windows:
    """Windows of all batch slots, and their common pool."""

    def __init__(self, columns: int, n: int, guesses: int, batch_size: int) -> None:
        self.columns, self.n, self.guesses = columns, n, guesses
        self.layout = lay_out(columns, n, guesses)
        self.pool: Pool = {}
        self.levels = [[[0] * columns for _ in range(n - 1)] for _ in range(batch_size)]
        """Tokens of the window of each batch slot, level by level; the root stands at the first place."""

    def __call__(self, rounds: Sequence[SlotRound]) -> list[PlainDrafts]:
        learned: Pool = {}
        for slot, each in enumerate(rounds):  # the last batch slot that changes a list has its way
            learned |= self._changed(self._advance(slot, each))
        self.pool |= learned
        return [self._drafts(slot, each.known[-1]) for slot, each in enumerate(rounds)]

    def _advance(self, slot: int, read: SlotRound) -> list[list[int]]:
        """Move the window of a batch slot on by a round, and return the n-grams that came of it."""
        path, n = read.path, self.n
        ngrams = [path[start : start + n] for start in range(len(path) - n + 1)]
        last = self.layout.tree.drafts
        if len(read.rows) > last and read.rows[last][0] >= 0:  # the window was verified
            levels = self._shown(slot, read.rows[0][0])
            said = [read.rows[node][1][0] for node in self.layout.window[-1]]
            ngrams += [list(column) for column in zip(*levels, said, strict=True)]
            self.levels[slot] = [*levels[1:], said]
        elif len(path) > 2 or (len(path) > 1 and read.start == 0):  # a text: the levels are pieces of its end
            size = n + self.columns - 2
            end = [path[(place - size) % len(path)] for place in range(len(path), len(path) + size)]
            self.levels[slot] = [end[level : level + self.columns] for level in range(n - 1)]
        return ngrams

    def _changed(self, ngrams: list[list[int]]) -> Pool:
        """Return the lists that these n-grams change; known ones come to the front."""
        changed: Pool = {}
        for ngram in ngrams:
            number = ngram[0] % LISTS
            old = changed.get(number, self.pool.get(number, []))
            changed[number] = [ngram, *(each for each in old if each != ngram)][: self.guesses]
        return changed

    def _shown(self, slot: int, root: int) -> list[list[int]]:
        first, *others = self.levels[slot]
        return [[root, *first[1:]], *others]

    def _drafts(self, slot: int, root: int) -> PlainDrafts:
        """Return the window and the n-grams that begin with the root; where one is missing, the root stands for it."""
        known = self.pool.get(root % LISTS, [])
        found = [ngram[1:] if ngram[0] == root else [root] * (self.n - 1) for ngram in known]
        found += [[root] * (self.n - 1)] * (self.guesses - len(found))
        rows = [*self._shown(slot, root), *found]
        nodes = [node for row in (*self.layout.window, *self.layout.guesses) for node in row]
        tokens = dict(zip(nodes, (token for row in rows for token in row), strict=True))
        return PlainDrafts([tokens[node] for node in range(1, len(tokens))])
