"""A row's place in its grammar over a parser that is written down: what of its answers is believed."""

import ctypes

import numpy as np
import pytest

from speccompile.errors import UsageError
from speccompile.runtime.constraints.matcher import Matcher, Vocabulary

SIZE, END, OTHER_END = 40, 38, 39
"""Of two end tokens of the model the row ends with the first."""


class Parser:
    """What llguidance says at every place of a text that may only be `text`.

    masks: what may follow at each of them. accepting: places at which the text may be whole; it is at its end.
    """

    def __init__(self, text: list[int], masks: list[set[int]], accepting: set[int] = frozenset()) -> None:
        self.text, self.masks, self.accepting, self.at, self.wrong = text, masks, accepting, 0, False

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        bits = np.zeros(size * 8, bool)
        bits[list(self.masks[self.at])] = True
        ctypes.memmove(address, np.packbits(bits, bitorder="little").tobytes(), size)

    def is_accepting(self) -> bool:
        return self.at in self.accepting

    def is_stopped(self) -> bool:
        return self.at == len(self.text)

    def is_error(self) -> bool:
        return self.wrong

    def get_error(self) -> str:
        return "too many\n items"

    def validate_tokens(self, tokens: list[int]) -> int:
        return int(tokens == self.text[self.at : self.at + 1])

    def consume_token(self, token: int) -> bool:
        may = token in self.masks[self.at]
        self.at += may
        return may

    def rollback(self, count: int) -> None:
        assert 0 <= count <= self.at
        self.at -= count

    def compute_ff_tokens(self) -> list[int]:
        return self.text[self.at :]


def matcher(masks: list[set[int]], accepting: set[int] = frozenset(), text: list[int] | None = None) -> Matcher:
    inner = Parser(list(range(len(masks))) if text is None else text, masks, accepting)
    return Matcher(inner, Vocabulary(SIZE, frozenset([END]), frozenset([END, OTHER_END])))


def allowed(own: Matcher) -> list[int]:
    return np.flatnonzero(own.mask()).tolist()


@pytest.mark.parametrize(("accepting", "expected"), [(set(), [0, 5]), ({0}, [0, 5, END])])
def test_an_end_is_allowed_where_the_text_may_be_whole(accepting, expected):
    """Allow the row's end whatever the parser says of it, and never an end of another row."""
    assert allowed(matcher([{0, 5, END, OTHER_END}, {1}], accepting)) == expected


def test_masks_have_the_vocabulary_s_width():
    assert matcher([{0, 7, 8, 31, 32, 37}]).mask().shape == (SIZE,)
    assert allowed(matcher([{0, 7, 8, 31, 32, 37}])) == [0, 7, 8, 31, 32, 37]


@pytest.mark.parametrize(
    ("masks", "forced"),
    [
        ([{0}, {1}, {2}], [0, 1, 2]),
        ([{0}, {1, 9}, {2}], [0]),
        ([{0, 9}, {1}, {2}], []),
        ([{0}, {1}, {2, 9}], [0, 1]),
        ([{0}, {9}, {2}], [0]),
        ([{0, OTHER_END}, {1}], [0, 1]),
    ],
)
def test_what_is_forced_is_all_that_is_allowed(masks, forced):
    own = matcher(masks)
    assert own.forced_tokens(9) == forced
    assert own._inner.at == len(forced)


@pytest.mark.parametrize(
    ("most", "least", "forced"), [(2, 1, [0, 1]), (2, 2, [0, 1]), (2, 3, []), (9, 3, [0, 1, 2]), (0, 1, [])]
)
def test_so_many_are_forced_or_none(most, least, forced):
    own = matcher([{0}, {1}, {2}])
    assert own.forced_tokens(most, least) == forced
    assert own._inner.at == len(forced)
    if len(forced) < 3:
        assert allowed(own) == [len(forced)]


def test_one_alone_is_forced_by_default():
    assert matcher([{0}, {1, 9}]).forced_tokens(9) == [0]


def test_where_the_text_may_end_nothing_is_forced():
    assert matcher([{0, END}, {1}], {0}).forced_tokens(9) == []


@pytest.mark.parametrize(
    ("tokens", "count", "at"),
    [
        ([0, 1], 2, 2),
        ([0, 1, 2], 3, 3),
        ([0, 1, 2, 7, 8], 3, 3),
        ([0, 9, 2], 1, 1),
        ([END, 1], 1, 0),
        ([0, END, 1], 2, 1),
        ([], 0, 0),
    ],
)
def test_tokens_are_taken_up_to_the_end_of_the_text(tokens, count, at):
    own = matcher([{0}, {1}, {2}])
    own.mask()
    assert own.accept_tokens(tokens) == count
    assert own._inner.at == at
    if at < 3:
        assert allowed(own) == [at]


def test_why_a_row_ends():
    assert matcher([{0}]).end == ""
    assert matcher([{END}], {0}).end == "stop"  # nothing but the end can follow
    assert matcher([set()]).end == "capacity"
    assert matcher([{0, END}], {0}).end == ""
    whole = matcher([{0}], {1})
    whole.accept_tokens([0])
    assert whole.end == "stop"
    cut = matcher([{0}])
    cut.accept_tokens([0])
    assert cut.end == "capacity"


def test_a_parser_at_its_limits_ends_its_own_row_with_an_error():
    lost = matcher([{0}])
    lost._inner.wrong = True
    with pytest.raises(UsageError, match="with this grammar: too many items"):
        assert lost.end
    assert lost.has_failed


TREE = (-1, 0, 0, 1, 3)


def test_every_node_of_a_round_has_its_mask():
    """Nodes 1 and 2 follow the root, 3 node 1, and 4 node 3. Behind a draft that is refused or whole all is allowed."""
    masks = [{0, 9}, {1}, {2, 8}, {3}, {4}]
    own = matcher(masks)
    found = np.zeros((6, SIZE), bool)
    own.write(found, [0, 7, 1, 2], TREE)
    assert [np.flatnonzero(row).tolist() for row in found[[0, 1, 3, 4]]] == [[0, 9], [1], [2, 8], [3]]
    assert found[2].all()
    assert found[5].all()
    assert own._inner.at == 0
    own.write(found, [0, 1, 9])
    assert [np.flatnonzero(row).tolist() for row in found[:3]] == [[0, 9], [1], [2, 8]]
    assert found[3:].all()
    own.write(found[:2], [0, 1, 2])
    assert [np.flatnonzero(row).tolist() for row in found[:2]] == [[0, 9], [1]]
    assert own._inner.at == 0


def test_behind_a_draft_that_ends_the_text_all_is_allowed():
    own = matcher([{0}, {1}])
    found = np.zeros((4, SIZE), bool)
    own.write(found, [0, 1, 5])
    assert [np.flatnonzero(row).tolist() for row in found[:2]] == [[0], [1]]
    assert found[2:].all()
    assert own._inner.at == 0
    own.write(found, [END])
    assert found[1:].all()
    assert own._inner.at == 0
