"""tokenizer.json of translators that are published without one: Marian's and M2M100's.

Their tokens are numbered by vocab.json, and a model of SentencePiece cuts texts. transformers runs that model itself,
and writes no tokenizer.json of them; what is written here gives the same ids. Only a source's piece that vocab.json
lacks is cut into others here, and unknown there.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.sentence_pieces import BPE, UNIGRAM, PieceModel, read_pieces
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.json_files import is_present, read_json_object, wrong

VOCABULARY, TOKENIZER_CONFIG = "vocab.json", "tokenizer_config.json"
PIECES = {"marian": "source.spm", "m2m_100": "sentencepiece.bpe.model"}
"""Type of model -> its file that cuts a source."""

_SPACE, _UNKNOWN, _END = "\u2581", "<unk>", "</s>"
_SPECIAL = ("<s>", "<pad>", _END, _UNKNOWN)
_UNREACHED = "\U0010fffd"
"""Begins the names of tokens that no source has, such as pieces of the other language: a normalizer takes it out of
texts, and the decoder out of answers."""
_CODES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""Languages in the order of their ids behind the vocabulary, by `language_codes`: the lists are transformers'."""

Json = dict[str, Any]


def piece_files(folder: Path, model_type: object) -> tuple[Path, ...]:
    """Return the files that a tokenizer.json can be made of; none where there is one, and for other types."""
    name = PIECES.get(str(model_type))
    files = () if name is None else (folder / name, folder / VOCABULARY)
    if is_present(folder / "tokenizer.json") or not all(map(is_present, files)):
        return ()
    return files


def make_tokenizer(folder: Path, model_type: str) -> tuple[Json, Json]:
    """Return tokenizer.json and tokenizer_config.json. Raise CheckpointError for files that are damaged,
    UnsupportedModelError for a source and an answer with different tokens, and as `read_pieces`."""
    config = read_json_object(folder / TOKENIZER_CONFIG) or {}
    model, vocabulary = read_pieces(folder / PIECES[model_type]), _vocabulary(folder / VOCABULARY)
    if config.get("separate_vocabs"):
        raise UnsupportedModelError(
            f"{folder / TOKENIZER_CONFIG}: received separate_vocabs: true, expected one vocabulary for both sides",
            hint="choose a model whose encoder and decoder have the same tokens",
        )
    languages = {} if model_type == "marian" else _languages(folder, config, len(vocabulary))
    codes = {name: id_ for name, id_ in vocabulary.items() if name.startswith(">>") and name.endswith("<<")}
    special = {name: vocabulary[name] for name in _SPECIAL if name in vocabulary} | languages
    make_model = _unigrams if model.kind == UNIGRAM else _pairs
    steps: list[Json] = [{"type": "Precompiled", "precompiled_charsmap": b64encode(model.charsmap).decode()}]
    made: Json = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [*_added(special, special=True), *_added(codes, special=False)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": _UNREACHED}, "content": ""},
            *(steps if model.charsmap else ()),
            {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": False},
        "post_processor": _template(special, _source_language(folder, config, languages)),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": _UNREACHED}, "content": ""},
            {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": False},
        ]},
        "model": make_model(model, vocabulary, {*special, *codes}),
    }  # fmt: skip
    names = {"eos_token": _END, "unk_token": _UNKNOWN} | ({"pad_token": "<pad>"} if "<pad>" in special else {})
    return made, {"tokenizer_class": "PreTrainedTokenizerFast", **names}


def _vocabulary(path: Path) -> dict[str, int]:
    found = read_json_object(path) or {}
    if not all(type(id_) is int for id_ in found.values()) or sorted(found.values()) != list(range(len(found))):
        raise wrong(path, "ids with holes", "a token for each id from 0 on")
    for name in (_END, _UNKNOWN):
        if name not in found:
            raise wrong(path, f"no token {name}", f"a vocabulary with {name}")
    return found


def _languages(folder: Path, config: Mapping[str, Any], first: int) -> dict[str, int]:
    """Return the tokens of languages, which stand behind the vocabulary."""
    known = config.get("language_codes", "m2m100")
    if known not in _CODES:
        raise wrong(folder / TOKENIZER_CONFIG, f"language_codes: {known!r}", f"one of {', '.join(_CODES)}")
    return {f"__{code}__": first + place for place, code in enumerate(_CODES[known].split())}


def _source_language(folder: Path, config: Mapping[str, Any], languages: Mapping[str, int]) -> list[str]:
    """Return the token with which a source begins: none, or that of a language, by default of English."""
    if not languages:
        return []
    token = f"__{config.get('src_lang') or 'en'}__"
    if token not in languages:
        raise wrong(folder / TOKENIZER_CONFIG, f"src_lang: {config['src_lang']!r}", "one of its languages")
    return [token]


def _added(tokens: Mapping[str, int], *, special: bool) -> list[Json]:
    """Return tokens that are found in a text before it is cut. Spaces behind a code of a language are no text."""
    flags = {"single_word": False, "lstrip": False, "rstrip": not special, "normalized": False, "special": special}
    return [{"id": id_, "content": name, **flags} for name, id_ in sorted(tokens.items(), key=lambda each: each[1])]


def _template(special: Mapping[str, int], before: Iterable[str]) -> Json:
    parts: list[Json] = [{"SpecialToken": {"id": each, "type_id": 0}} for each in (*before, _END)]
    parts.insert(len(parts) - 1, {"Sequence": {"id": "A", "type_id": 0}})
    used = {name: {"id": name, "ids": [special[name]], "tokens": [name]} for name in (*before, _END)}
    second: Json = {"Sequence": {"id": "B", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": parts, "pair": [*parts, second], "special_tokens": used}


def _unigrams(model: PieceModel, vocabulary: Mapping[str, int], kept: set[str]) -> Json:
    """Return a model that knows pieces of a source by their scores, and other tokens by names that no text has. A
    character that the source's model lacks is looked up among all tokens: no piece competes with it, whatever its
    score. (Of several such characters in a row transformers makes one unknown token.)"""
    scored = []
    for name in sorted(vocabulary, key=vocabulary.__getitem__):
        is_reached = name in model.pieces or name in kept or len(name) == 1
        scored.append([name if is_reached else _UNREACHED + name, model.pieces.get(name, 0.0)])
    return {"type": UNIGRAM, "unk_id": vocabulary[_UNKNOWN], "vocab": scored, "byte_fallback": False}


def _pairs(model: PieceModel, vocabulary: Mapping[str, int], _: set[str]) -> Json:
    """Return a model that merges pairs of pieces, the best score of what they make first."""
    pieces = {name: score for name, score in model.pieces.items() if name in vocabulary}
    found = [
        (-score, place, name[:at], name[at:])
        for place, (name, score) in enumerate(pieces.items())
        for at in range(1, len(name))
        if name[:at] in pieces and name[at:] in pieces
    ]
    merges = [[left, right] for *_, left, right in sorted(found)]
    return {
        "type": BPE, "dropout": None, "unk_token": _UNKNOWN, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": False, "ignore_merges": False,
        "vocab": dict(vocabulary), "merges": merges,
    }  # fmt: skip
