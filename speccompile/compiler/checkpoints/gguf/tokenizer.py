"""tokenizer.json and tokenizer_config.json of a GGUF file, from its metadata.

`gpt2`: byte-level BPE with the file's merges; `tokenizer.ggml.pre` names how text is cut. `llama`: SentencePiece's BPE
with byte fallback, whose merges follow from scores (Gemma's: from the order of the tokens). The format of
tokenizer.json is that of the library tokenizers.
"""

import json
from collections import Counter
from typing import Any, NamedTuple

from speccompile.compiler.checkpoints.gguf.metadata import Metadata, shown
from speccompile.compiler.checkpoints.gguf.text_splits import BYTE_LEVEL, TEXT_SPLITS
from speccompile.errors import UnsupportedModelError

WHOLE = "tokenizer.huggingface.json"
TEMPLATE, TEMPLATES = "tokenizer.chat_template", "tokenizer.chat_templates"
NONE = ("none", "no_vocab")
"""Values of tokenizer.ggml.model of files without a tokenizer."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of tokenizer.ggml.token_type."""

SPACE = "\u2581"
PHI3 = "phi3"
PHI3_KEEPING_SPACES = ("<unk>", "<s>", "<|endoftext|>")
GEMMA = ("gemma", "gemma2", "gemma3")

Json = dict[str, Any]

WITHOUT_EFFECT = tuple(
    f"tokenizer.ggml.{name}"
    for name in (
        "token_type_count", "seperator_token_id", "cls_token_id", "mask_token_id", "prefix_token_id",
        "suffix_token_id", "middle_token_id", "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id",
        "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id", "eot_token_id", "eom_token_id",
    )
)  # fmt: skip
"""Keys that name tokens for uses that a bundle has not."""


class Vocabulary(NamedTuple):
    """Tokens by id, and the type of each."""

    tokens: list[str]
    types: list[int]

    def of_type(self, *types: int) -> dict[str, int]:
        """Return token -> id, of these types."""
        return {
            token: index
            for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in types
        }


def make_tokenizer(metadata: Metadata, architecture: str, size: int) -> tuple[Json, Json] | None:
    """Return tokenizer.json and tokenizer_config.json; None for a file without a tokenizer. size: of the vocabulary.

    Raise CheckpointError for values that contradict each other, UnsupportedModelError for a tokenizer, or a way of
    cutting text, that is not known.
    """
    metadata.claim(WITHOUT_EFFECT)
    kind = metadata.text("tokenizer.ggml.model", NONE[0])
    if kind in NONE:
        return None
    makers = {"gpt2": _byte_level, "llama": _sentence_piece}
    if kind not in makers:
        raise unsupported(metadata, "tokenizer.ggml.model", kind, " or ".join(makers))
    vocabulary = _vocabulary(metadata, size, architecture)
    made, adds_bos = makers[kind](metadata, vocabulary, architecture)
    made["added_tokens"] = _added_tokens(vocabulary, architecture)
    made["post_processor"] = _post_processor(metadata, vocabulary, adds_bos)
    made = {"version": "1.0", "truncation": None, "padding": None, **made}
    return _whole(metadata) or made, _config(metadata, vocabulary)


def unsupported(metadata: Metadata, key: str, received: str, expected: str) -> UnsupportedModelError:
    """Return the error for a tokenizer that cannot be made."""
    return UnsupportedModelError(
        f"{metadata.path}: {key}: received {shown(received)}, expected {expected}",
        hint="take the tokenizer of the model that the file was made from: set target.tokenizer, or --tokenizer, to a "
        "folder with its tokenizer.json",
    )


def _vocabulary(metadata: Metadata, size: int, architecture: str) -> Vocabulary:
    tokens = metadata.items("tokenizer.ggml.tokens", str, size)
    if tokens is None:
        raise metadata.wrong("tokenizer.ggml.tokens", None, f"{size} tokens")
    types = metadata.items("tokenizer.ggml.token_type", int, size) or [NORMAL] * size
    if architecture in GEMMA:
        tokens = [_spelled(token) for token in tokens]
    vocabulary = Vocabulary(tokens, types)
    known = [kind for kind in types if kind != UNUSED]
    if len(vocabulary.of_type(*set(known))) != len(known):
        counts = Counter(token for token, kind in zip(tokens, types, strict=True) if kind != UNUSED)
        ((twice, _),) = counts.most_common(1)
        raise metadata.wrong("tokenizer.ggml.tokens", f"the token {twice!r} twice", "each token once")
    return vocabulary


def _byte_level(metadata: Metadata, vocabulary: Vocabulary, architecture: str) -> tuple[Json, bool]:
    """Return model, normalizer, pre-tokenizer and decoder, and whether a text begins with BOS where nothing says so."""
    merges = metadata.items("tokenizer.ggml.merges", str)
    if merges is None:
        raise metadata.wrong("tokenizer.ggml.merges", None, "the merges of byte-level BPE")
    pre = metadata.text("tokenizer.ggml.pre", "default")
    split = TEXT_SPLITS.get(pre)
    if split is None:
        raise unsupported(metadata, "tokenizer.ggml.pre", pre, f"one of {', '.join(TEXT_SPLITS)}")
    metadata.items("tokenizer.ggml.scores", float)
    metadata.require("tokenizer.ggml.add_space_prefix", False)
    vocab = vocabulary.of_type(NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE)
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": split.ignore_merges, "vocab": vocab,
        "merges": [_pair(metadata, merge, vocab) for merge in merges],
    }  # fmt: skip
    made = {"normalizer": split.normalizer, "pre_tokenizer": split.pre_tokenizer, "decoder": BYTE_LEVEL, "model": model}
    return made, split.adds_bos


def _pair(metadata: Metadata, merge: str, vocab: dict[str, int]) -> list[str]:
    left, _, right = merge.partition(" ")
    if left not in vocab or right not in vocab or left + right not in vocab:
        raise metadata.wrong("tokenizer.ggml.merges", repr(merge), "two tokens that make a third one, with a space")
    return [left, right]


def _sentence_piece(metadata: Metadata, vocabulary: Vocabulary, architecture: str) -> tuple[Json, bool]:
    """Return the same as `_byte_level`. Every text, also one after a special token, begins with a space unless the
    file says otherwise."""
    metadata.require("tokenizer.ggml.pre", "default", "llama-spm", "gemma")
    metadata.require("tokenizer.ggml.remove_extra_whitespaces", False)
    scores = metadata.items("tokenizer.ggml.scores", float, len(vocabulary.tokens))
    if scores is None:
        raise metadata.wrong("tokenizer.ggml.scores", None, "a score for each token")
    is_gemma = architecture in GEMMA
    if is_gemma:  # ranked by their order
        scores = [-float(index) for index in range(len(scores))]
    pieces = vocabulary.of_type(NORMAL, USER_DEFINED)
    vocab = vocabulary.of_type(NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE)
    unknown = metadata.id("tokenizer.ggml.unknown_token_id", len(vocabulary.tokens))
    has_bytes = sum(kind == BYTE for kind in vocabulary.types) == 256
    model = {
        "type": "BPE", "dropout": None, "unk_token": None if unknown is None else vocabulary.tokens[unknown],
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": has_bytes,
        "ignore_merges": False, "vocab": vocab, "merges": _merges(pieces, scores),
    }  # fmt: skip
    replace: Json = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    ]  # fmt: skip
    normalizer = replace
    if metadata.flag("tokenizer.ggml.add_space_prefix", not is_gemma):
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    decoder = {"type": "Sequence", "decoders": back}
    return {"normalizer": normalizer, "pre_tokenizer": None, "decoder": decoder, "model": model}, True


def _spelled(token: str) -> str:
    """Return a token of Gemma's: the converter writes those of spaces alone with spaces."""
    return SPACE * len(token) if token and not token.strip(" ") else token


def _merges(pieces: dict[str, int], scores: list[float]) -> list[list[str]]:
    """Return pairs of pieces that make a piece, the best score first: SentencePiece merges the best pair of neighbours,
    so that a pair's rank is that of the piece that it makes."""
    found = [
        (-scores[index], -at, at - len(piece), piece[:at], piece[at:])
        for piece, index in pieces.items()
        for at in range(1, len(piece))
        if piece[:at] in pieces and piece[at:] in pieces
    ]
    return [[left, right] for *_, left, right in sorted(found, key=lambda each: each[:3])]


def _added_tokens(vocabulary: Vocabulary, architecture: str) -> list[Json]:
    """Return tokens that are found in a text before it is cut; special ones are left out of decoded text. Those of
    Phi 3 take the spaces behind them: no file says it, and llama.cpp does it by the model's name (llama-vocab.cpp)."""
    strips = architecture == PHI3 and BYTE in vocabulary.types
    kept = frozenset(PHI3_KEEPING_SPACES if strips else vocabulary.tokens)
    return [
        {
            "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": token not in kept,
            "normalized": False, "special": kind != USER_DEFINED,
        }
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (UNKNOWN, CONTROL, USER_DEFINED) and token
    ]  # fmt: skip


def _post_processor(metadata: Metadata, vocabulary: Vocabulary, adds_bos: bool) -> Json | None:
    """Return what puts BOS and EOS around a text, None where nothing is put."""
    size = len(vocabulary.tokens)
    ends = []
    for name, default in (("bos", adds_bos), ("eos", False)):
        index = metadata.id(f"tokenizer.ggml.{name}_token_id", size)
        is_said = f"tokenizer.ggml.add_{name}_token" in metadata
        adds = metadata.flag(f"tokenizer.ggml.add_{name}_token", default)
        if adds and index is None and is_said:
            raise metadata.wrong(f"tokenizer.ggml.{name}_token_id", None, f"the token that add_{name}_token adds")
        ends.append(index if adds else None)
    metadata.require("tokenizer.ggml.add_sep_token", False)
    if ends == [None, None]:
        return None
    tokens = {vocabulary.tokens[index]: index for index in ends if index is not None}

    def template(sequence: str, number: int) -> list[Json]:
        before, after = (
            [] if index is None else [{"SpecialToken": {"id": vocabulary.tokens[index], "type_id": number}}]
            for index in ends
        )
        return [*before, {"Sequence": {"id": sequence, "type_id": number}}, *after]

    return {
        "type": "TemplateProcessing", "single": template("A", 0), "pair": [*template("A", 0), *template("B", 1)],
        "special_tokens": {text: {"id": text, "ids": [index], "tokens": [text]} for text, index in tokens.items()},
    }  # fmt: skip


def _whole(metadata: Metadata) -> Json | None:
    """Return the original tokenizer.json, where the file has it."""
    text = metadata.optional(WHOLE)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise metadata.wrong(WHOLE, text, "the text of a tokenizer.json")
    return found


def _config(metadata: Metadata, vocabulary: Vocabulary) -> Json:
    """Return tokenizer_config.json. The class takes tokenizer.json as it is."""
    config: Json = {"tokenizer_class": "TokenizersBackend", "clean_up_tokenization_spaces": False}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.id(f"tokenizer.ggml.{key}_token_id", len(vocabulary.tokens))
        config |= {} if index is None else {f"{name}_token": vocabulary.tokens[index]}
    template = metadata.optional(TEMPLATE)
    named = {name: metadata.text(f"{TEMPLATE}.{name}") for name in metadata.items(TEMPLATES, str) or []}
    if template is not None:
        text = metadata.text(TEMPLATE)
        named = {"default": text, **named} if named else {}
        config |= {} if named else {"chat_template": text}
    if named:
        config["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
    return config
