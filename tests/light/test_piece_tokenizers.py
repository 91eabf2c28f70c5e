"""Translators without tokenizer.json: the ids are those of transformers, and the folder with the file is made once."""

import json

import pytest
from tokenizers import Tokenizer

from speccompile.compiler.checkpoints.encoder_decoder import read_source_facts
from speccompile.compiler.checkpoints.piece_tokenizers import make_tokenizer
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.recipe.pieces import with_tokenizer
from tests.light.piece_models import IDS, PIECES, TEXTS, write_translator

START = {"model_type": "m2m_100", "vocab_size": 140, "decoder_start_token_id": 2}


@pytest.mark.parametrize("name", PIECES)
def test_ids_and_texts_are_those_of_transformers(name, tmp_path):
    made, _ = make_tokenizer(write_translator(tmp_path, name), name)
    tokenizer = Tokenizer.from_str(json.dumps(made))
    assert {text: tokenizer.encode(text).ids for text in IDS[name]} == IDS[name]
    assert {ids: tokenizer.decode(list(ids)) for ids in TEXTS[name]} == TEXTS[name]


def test_a_folder_with_a_tokenizer_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    write_translator(folder, "m2m_100", src_lang="fr")
    made = with_tokenizer(folder)
    assert made != folder
    assert with_tokenizer(folder) == made
    assert json.loads((made / "config.json").read_text()) == {"model_type": "m2m_100"}
    assert json.loads((made / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    languages = read_source_facts(START, made).languages
    assert (len(languages), languages["fr"], languages["zu"]) == (100, tokenizer.encode("the").ids[0], 117)
    (folder / "vocab.json").touch()
    write_translator(folder, "m2m_100")
    other = with_tokenizer(folder)
    assert other != made
    (folder / "tokenizer.json").write_text("{}")
    assert with_tokenizer(folder) == folder


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("marian", "source.spm", lambda data: b"", "received no model of SentencePiece"),
        ("marian", "source.spm", lambda data: data[:-3], "received no model of SentencePiece"),
        ("marian", "source.spm", lambda data: b"\x0a\xff" + data, "received no model of SentencePiece"),
        ("marian", "source.spm", lambda data: data + b"\x12\x03\x98\x02\x01", "with bytes, pieces of its user's"),
        ("marian", "source.spm", lambda data: data + b"\x1a\x02\x18\x00", "with bytes, pieces of its user's"),
        ("marian", "vocab.json", lambda data: b'{"</s>": 0, "<unk>": 2}', "received ids with holes"),
        ("marian", "vocab.json", lambda data: b'{"</s>": 0, "a": 1}', "received no token <unk>"),
        ("marian", "tokenizer_config.json", lambda data: b'{"separate_vocabs": true}', "separate_vocabs: true"),
        ("m2m_100", "tokenizer_config.json", lambda data: b'{"language_codes": "x"}', "language_codes: 'x'"),
        ("m2m_100", "tokenizer_config.json", lambda data: b'{"src_lang": "xx"}', "src_lang: 'xx'"),
    ],
)  # fmt: skip
def test_other_files_are_refused(name, file, change, message, tmp_path):
    path = write_translator(tmp_path, name) / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises((CheckpointError, UnsupportedModelError), match=message) as caught:
        make_tokenizer(tmp_path, name)
    assert str(path) in str(caught.value)
