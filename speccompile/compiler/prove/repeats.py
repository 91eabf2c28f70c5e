"""A proposer that needs only the text: for proofs of bundles whose own proposer is the user's."""

from collections.abc import Sequence


class RepeatProposer:
    """Propose the tokens after the last token's previous occurrences: the latest one, and in a tree, as long as nodes
    are left, each earlier one with another continuation, on separate branches."""

    def __init__(self, drafts: int, depth: int, is_chain: bool) -> None:
        self._drafts, self._depth, self._is_chain = drafts, depth, is_chain

    def propose(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        drafts, parents, firsts = list[int](), list[int](), set[int]()
        for place in range(len(tokens) - 2, -1, -1):
            if tokens[place] == tokens[-1] and tokens[place + 1] not in firsts:
                branch = tokens[place + 1 : place + 1 + min(self._depth, self._drafts - len(drafts))]
                parents += [len(drafts) + step - 1 if step else -1 for step in range(len(branch))]
                drafts += branch
                firsts.add(branch[0])
                if self._is_chain or len(drafts) == self._drafts:
                    break
        return drafts, parents
