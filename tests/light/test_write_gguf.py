"""scripts/serving/write_gguf.py without gguf: the metadata of a tokenizer, and the refused tokenizers."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TOKENIZER = {
    "added_tokens": [{"id": 0, "content": "<end>", "special": True}, {"id": 3, "content": "<x>", "special": False}],
    "normalizer": None, "pre_tokenizer": SPLIT, "model": {"type": "BPE", "vocab": {"a": 1, "b": 2}},
}  # fmt: skip


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Write a tokenizer: what gguf's writer was told."""
    for folder in ("peers", "serving"):
        monkeypatch.syspath_prepend(SCRIPTS / folder)
    for name in ("common", "peer_llama_cpp", "write_gguf"):  # of an earlier owner of the name
        monkeypatch.delitem(sys.modules, name, raising=False)
    special = Mock(return_value=Mock(add_special_token={"eos": True}))
    kinds = SimpleNamespace(NORMAL="normal", UNUSED="unused", CONTROL="control", USER_DEFINED="user")
    monkeypatch.setitem(sys.modules, "gguf", SimpleNamespace(TokenType=kinds, SpecialVocab=special))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 5}))

    def write(tokenizer):
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
        writer = Mock()
        import_module("write_gguf").add_vocabulary(writer, tmp_path)
        return writer, special.return_value

    return write


def test_every_row_of_the_embedding_has_a_token(written):
    writer, special = written(TOKENIZER)
    writer.add_token_list.assert_called_once_with(["<end>", "a", "b", "<x>", "[PAD4]"])
    writer.add_token_types.assert_called_once_with(["control", "normal", "normal", "user", "unused"])
    assert special.add_special_token == {"bos": False, "eos": True}
    special.add_to_gguf.assert_called_once_with(writer, quiet=True)


@pytest.mark.parametrize("changes", [
    {"model": {"type": "Unigram"}}, {"pre_tokenizer": None}, {"pre_tokenizer": SPLIT | {"use_regex": False}},
    {"normalizer": {"type": "NFC"}},
])  # fmt: skip
def test_tokenizers_that_cut_otherwise_are_refused(written, changes):
    with pytest.raises(SystemExit, match="received the tokenizer"):
        written(TOKENIZER | changes)
