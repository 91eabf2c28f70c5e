"""The text in a drafter's own tokens: without gaps wherever a round begins, and safe from what a slot does not know."""

import torch

from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.own_text import OwnText, OwnTokens

TABLE = {0: [0], 1: [1], 2: [2, 3], 3: [4, 0, 5]}
WIDTH = 3
ROWS = 32


def own() -> OwnTokens:
    rows = torch.tensor([TABLE[token] + [0] * (WIDTH - len(TABLE[token])) for token in TABLE])
    counts = torch.tensor([len(pieces) for pieces in TABLE.values()])
    return OwnTokens(torch.tensor([0, 1]), torch.tensor([0, 1]), rows, counts)


def accepted(path, n_path, length, catch_up):
    return Accepted(torch.tensor(path), torch.tensor(n_path), torch.tensor(length), torch.arange(catch_up))


def expanded(tokens):
    return [piece for token in tokens for piece in TABLE[token]]


def test_rounds_read_every_token_once_and_in_order():
    """Chunks of a prompt, then rounds with drafts, of which some are accepted: each reads the last two tokens again."""
    random, ends = torch.Generator().manual_seed(1), torch.full((1, ROWS), -7)
    text = torch.randint(0, 4, (18,), generator=random).tolist()
    length, cache = 0, []
    for n_path, catch_up, drafts in ((5, 6, 2), (4, 5, 2), (1, 2, 2), (3, 2, 2), (2, 2, 2), (1, 4, 0)):
        path = text[length : length + n_path + 1]
        found = OwnText(accepted([path + [3] * 2], [n_path], [length], catch_up), own(), ends)
        begin, last = int(found.begin), int(found.last)
        read = found.tokens[0, : last + 1].tolist()
        cache = cache[:begin] + read
        assert cache == expanded(text[: length + n_path + 1])
        assert found.tokens.shape == (1, catch_up * WIDTH)
        assert int(found.end) == len(cache) - 1
        (ends,) = found.commit(drafts)
        following = text[length + n_path + 1 :][:drafts]  # drafts are tokens of both
        if any(len(TABLE[token]) > 1 for token in following):
            following = []
        cache += following
        length += n_path
        known = length + 1 + len(following)
        assert ends[0, length - n_path : known].tolist() == [
            len(expanded(text[: place + 1])) for place in range(length - n_path, known)
        ]


def test_an_idle_slot_writes_after_all_that_it_may_have_read():
    ends = torch.zeros(2, ROWS, dtype=torch.int64)
    ends[:, 3] = 6  # of the first slot; the second lags, and this is another text's
    found = OwnText(accepted([[2, 0, 1], [2, 2, 2]], [1, 0], [4, 4], 2), own(), ends)
    assert found.begin.tolist() == [6, 4 * WIDTH]
    assert found.tokens[0, :3].tolist() == [2, 3, 0]


def test_no_number_of_a_saved_session_leads_out_of_the_cache():
    for wrong in (10**12, -5):
        ends = torch.full((1, ROWS), wrong)
        found = OwnText(accepted([[1, 1]], [1], [4], 2), own(), ends)
        assert 0 <= int(found.begin) <= 4 * WIDTH


def test_a_draft_is_read_as_the_last_of_its_tokens():
    assert own().last[torch.tensor([0, 1, 2, 3])].tolist() == [0, 1, 3, 5]
