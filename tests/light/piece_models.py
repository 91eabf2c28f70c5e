"""Translators as they are published, without tokenizer.json: small models of SentencePiece, and what transformers with
the library sentencepiece 0.2.3 makes of texts by them."""

import json
from pathlib import Path

from transformers.utils import sentencepiece_model_pb2_new as messages

PIECES = {
    "marian": {
        "\u2581": -2.0, "\u2581the": -2.5, "\u2581man": -3.5, "man": -4.5, "s": -2.0, "m": -6.0, "a": -6.0, "n": -6.0,
        "t": -6.0, "h": -6.0, "e": -6.0, "\u2581t": -7.0, "he": -5.5,
    },
    "m2m_100": {
        "he": -0.0, "\u2581t": -1.0, "\u2581the": -2.0, "an": -3.0, "man": -4.0, "\u2581man": -5.0, "\u2581": -6.0,
        "t": -7.0, "h": -8.0, "e": -9.0, "m": -10.0, "a": -11.0, "n": -12.0, "s": -13.0,
    },
}  # fmt: skip
"""Pieces of a source and their scores."""
OTHERS = ["\u2581der", "\u2581mann", "er", "\u00e4", "thema", ">>deu<<", ">>fra<<", "<pad>"]
"""Tokens of Marian's answers, and codes of languages."""
IDS = {
    "marian": {
        "": [0], " ": [0], "the man": [3, 4, 0], "  the   mans ": [3, 4, 6, 0], "themanthe": [3, 5, 10, 14, 0],
        "the\nman": [3, 1, 5, 0], "m\u00e4n": [2, 7, 18, 9, 0], ">>deu<< the man": [20, 3, 4, 0],
        "der": [2, 1, 12, 1, 0], "the </s> man": [3, 0, 4, 0], "hat": [2, 11, 8, 10, 0],
    },
    "m2m_100": {
        "": [36, 2], " ": [36, 2], "the man": [36, 6, 9, 2], "  the   mans ": [36, 6, 9, 17, 2],
        "themanthe": [36, 6, 8, 11, 4, 2], "the\nman": [36, 6, 3, 8, 2], "m\u00e4n": [36, 10, 14, 3, 16, 2],
        ">>deu<< the man": [36, 10, 3, 13, 3, 6, 9, 2], "der": [36, 10, 3, 13, 3, 2], "the </s> man": [36, 6, 2, 9, 2],
        "hat": [36, 10, 12, 15, 11, 2],
    },
}  # fmt: skip
"""Texts and their ids."""
TEXTS = {
    "marian": {(5, 6, 0): "mans", (4, 19, 9): "mantheman", (3, 15, 16, 6, 0): "the der manns"},
    "m2m_100": {(6, 7, 2): "thean", (36, 9, 17): "mans"},
}  # fmt: skip
"""Ids and their texts without special tokens."""


def write_translator(folder: Path, name: str, **more: object) -> Path:
    """Write the files of a translator's tokenizer. more: of its tokenizer_config.json."""
    model, pieces = messages.ModelProto(), PIECES[name]
    for piece, score, kind in [
        ("<unk>", 0, 2),
        ("<s>", 0, 3),
        ("</s>", 0, 3),
        *((*each, 1) for each in pieces.items()),
    ]:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = 1 if name == "marian" else 2
    model.normalizer_spec.name = "identity"
    tokens = ["</s>", "<unk>", *pieces, *OTHERS] if name == "marian" else ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    files = {"marian": ("source.spm", "target.spm"), "m2m_100": ("sentencepiece.bpe.model",)}[name]
    for file in files:
        (folder / file).write_bytes(model.SerializeToString())
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    kind = {"marian": "MarianTokenizer", "m2m_100": "M2M100Tokenizer"}[name]
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **more}))
    (folder / "config.json").write_text(json.dumps({"model_type": name}))
    return folder
