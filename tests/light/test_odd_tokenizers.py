"""Tokenizers whose ids have holes, or belong to two tokens, against the tokenizers package's own decoding."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from speccompile.compiler.models.tokenizer import write_tokenizer
from speccompile.errors import CheckpointError, UsageError
from speccompile.runtime.constraints import GrammarCompiler
from speccompile.runtime.constraints.fitted_tokenizer import fitted
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer
from tests.light.odd_tokenizers import ODD, added, odd_tokenizer
from tests.light.test_constraints import manifest
from tests.suite.selection import sweep_but

PADDINGS = (0, 40, -1)
"""Rows of a vocabulary beside the tokenizer's: as many, more, fewer."""
ENDS = ((2,), (2, 5000), (5000,))
"""End tokens: the tokenizer's own, one without a row beside it, none of its own."""
ENDS_OF_ROWS = list(zip(PADDINGS, ENDS, strict=True))
BEGINNING = re.compile("[a-c ]+(<(/(s>?)?)?)?")
"""Texts with which a match of the constraint `[a-c ]+</s>?` may begin."""


@pytest.fixture(params=sorted(ODD))
def path(request, tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(FastTokenizer.from_str(ODD[request.param]).to_str())  # as a build writes it
    return path


@pytest.mark.parametrize("vocabulary", sweep_but(ENDS_OF_ROWS, product(PADDINGS, ENDS), "more pairs"), ids=str)
def test_a_constraint_allows_the_tokens_that_its_text_can_begin_with(path, vocabulary):
    padding, ends = vocabulary
    fast = FastTokenizer.from_file(str(path))
    names = fast.get_vocab(with_added_tokens=True)
    rows = max(names.values()) + 1 + padding
    own = GrammarCompiler(manifest(rows, ends), path, "hash").constraint("regex", "[a-c ]+</s>?").matcher(ends)
    special = {index for index, token in fast.get_added_tokens_decoder().items() if token.special}
    can = {
        each
        for each in names.values()
        if each < rows and each not in special and BEGINNING.fullmatch(fast.decode([each]))
    }
    assert set(np.flatnonzero(own.mask())) == can
    assert can


def test_a_constraint_that_no_token_can_begin_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(odd_tokenizer(1))
    with pytest.raises(UsageError, match="received one whose texts no token of this model can begin"):
        GrammarCompiler(manifest(40), path, "hash").constraint("regex", "[a-z]+")


@pytest.mark.parametrize("size", [1, 4])
def test_special_tokens_of_any_id_stop_and_are_not_shown(path, size):
    text, fast = Tokenizer(path), FastTokenizer.from_file(str(path))
    for index, token in fast.get_added_tokens_decoder().items():
        begin, end = fast.encode("cd c").ids, fast.encode("dc").ids
        ids = [*begin, index, *end]
        stream = IncrementalDetokenizer(text, [], [token.content])
        groups = [ids[start : start + size] for start in range(0, len(ids), size)]
        assert "".join([*map(stream.push, groups), stream.finish()]) == fast.decode(begin)
        assert (stream.stopped, stream.kept) == (True, len(begin) + 1)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"chat_template": 5}, "chat_template: received 5, expected a text, or texts by their names"),
        ({"chat_template": {"default": 5}}, "chat_template: received 5, expected a text, or texts by their names"),
        ({"chat_template": "a\ud800"}, r"chat_template: received 'a\\ud800', expected a text"),
        ("[" * 100_000, "the tokenizer cannot be loaded: maximum recursion depth exceeded"),
        ({"eos_token": 5}, "the tokenizer cannot be loaded: Special token eos_token has to be either str or"),
    ],
)
def test_files_that_no_bundle_could_be_opened_with_are_refused(tmp_path, config, said):
    (tmp_path / "tokenizer.json").write_text(odd_tokenizer(1))
    written = config if isinstance(config, str) else json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | config)
    (tmp_path / "tokenizer_config.json").write_text(written)
    with pytest.raises(CheckpointError, match=said):
        write_tokenizer(tmp_path, tmp_path / "bundle")


def test_added_tokens_that_get_other_ids_than_their_file_says_are_told(tmp_path, caplog):
    """Warn where the library gives them the next free ids, as transformers does."""
    (tmp_path / "tokenizer.json").write_text(odd_tokenizer(1, added(2, "</s>"), added(300, "<x>"), added(400, "<y>")))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    write_tokenizer(tmp_path, tmp_path / "bundle")
    assert Tokenizer(tmp_path / "bundle/tokenizer/tokenizer.json").encode("<x><y>") == [260, 261]
    assert (
        "tokenizer.json names the ids '<x>' 300, '<y>' 400, and the tokenizers library gives them 260, 261"
        in caplog.text
    )


def test_words_that_go_on_are_still_merged():
    """Add a token to a BPE tokenizer whose continuing parts have a prefix: it has one more than the model has rows."""
    names = ["a", "b", "##b", "##c", "ab", "abc", "x"]
    pairs = [("a", "##b"), ("ab", "##c")]
    fast = FastTokenizer(BPE({name: index for index, name in enumerate(names)}, pairs, continuing_subword_prefix="##"))
    assert fast.encode("abc").tokens == ["abc"]
    assert FastTokenizer.from_str(fitted(fast.to_str(), len(names) - 1)).encode("abc").tokens == ["abc"]
