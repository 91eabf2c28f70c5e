"""Drafts over texts: from one tokenizer to another, without models."""

from types import SimpleNamespace

import pytest

from speccompile.errors import UsageError
from speccompile.runtime import Proposer, TextProposer
from speccompile.runtime.text.tokenizer import Tokenizer
from tests.tokenizer_pairs import byte_level, with_signs

STORY = "the quick brown fox jumps over the lazy dog and the other dogs – naïve"


class Writer:
    """A bundle that goes on with a known story, in tokens of another tokenizer."""

    def __init__(self, path, max_length=64):
        self.text, self.manifest, self.read = Tokenizer(path), SimpleNamespace(max_length=max_length), []
        self.reused = 0

    def reuse_last(self):
        self.reused += 1

    def generate(self, ids, *, max_new_tokens, temperature):
        assert temperature == 0
        self.read.append(ids)
        known = self.text.decode(ids)
        assert STORY.startswith(known)
        new = self.text.encode(STORY[len(known) :])[:max_new_tokens]
        return SimpleNamespace(text=self.text.decode([*ids, *new])[len(known) :])


@pytest.fixture
def target(tmp_path):
    (tmp_path / "bundle" / "tokenizer").mkdir(parents=True)
    byte_level().save(str(tmp_path / "bundle" / "tokenizer" / "tokenizer.json"))
    return tmp_path / "bundle"


@pytest.fixture
def writer(tmp_path):
    with_signs().save(str(tmp_path / "theirs.json"))
    return Writer(tmp_path / "theirs.json")


def test_drafts_are_the_tokens_of_the_text(target, writer):
    proposer, ids, drafted = TextProposer(writer, target, 6), byte_level().encode(STORY).ids, 0
    assert isinstance(proposer, Proposer)
    for length in range(1, len(ids) - 12):
        drafts, parents = proposer.propose(ids[:length])
        assert parents == list(range(-1, len(drafts) - 1))
        assert STORY.startswith(proposer._ours.decode([*ids[:length], *drafts]))
        # the last ones may be parts of a longer token
        drafted += sum(one == other for one, other in zip(drafts, ids[length:], strict=False))
    assert drafted > len(ids)
    assert writer.reused == len(writer.read)


def test_nothing_is_drafted_in_the_middle_of_a_character(target, writer):
    ids, proposer = byte_level().encode("–").ids, TextProposer(writer, target)
    assert len(ids) > 1
    assert proposer.propose(ids[:1]) == ([], []) == proposer.propose([])
    assert writer.read == []


def test_nothing_is_drafted_where_the_end_of_the_text_would_change(target, writer):
    """Draft nothing inside " fox", a token of the target, which would not have written it as three."""
    ids = byte_level().encode("the quick brown f").ids
    assert TextProposer(writer, target).propose(ids) == ([], [])
    assert len(writer.read) == 1


def test_a_text_that_the_drafter_cannot_hold_is_not_drafted_for(target, writer):
    writer.manifest.max_length = 12
    assert TextProposer(writer, target).propose(byte_level().encode(STORY[:60]).ids) == ([], [])
    assert writer.read == []


def test_wrong_arguments(target, writer, tmp_path):
    with pytest.raises(UsageError, match="TextProposer: received tokens=0, expected 1 or more"):
        TextProposer(writer, target, 0)
    with pytest.raises(UsageError, match=f"TextProposer: {tmp_path}/none has no tokenizer, expected one in both"):
        TextProposer(writer, tmp_path / "none")
    writer.text = None
    with pytest.raises(UsageError, match="TextProposer: the drafter's bundle has no tokenizer, expected one in both"):
        TextProposer(writer, target)
