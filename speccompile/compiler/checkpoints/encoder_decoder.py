"""Encoder-decoder checkpoints: which are supported, the sizes of their decoder, and how their answers begin."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints import speech
from speccompile.compiler.checkpoints.json_files import CONFIG, GENERATION_CONFIG, generation_rules
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.json_files import read_json_object, wrong
from speccompile.plan.sources import SourceFacts

TOKENIZER = "tokenizer.json"

TYPES = ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "t5gemma", "umt5", *speech.TYPES)
"""Values of `model_type` of encoder-decoders that can be compiled."""

OF_LANGUAGES = ("m2m_100", "mbart")
"""Types whose texts begin with the token of a language."""

_NO_LIMIT = ("n_positions",)
"""Keys of T5's configs that say how long its training texts were: its positions have no limit."""

_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{2}_[A-Z]{2})|([a-z]{3}_[A-Z][a-z]{3})")
"""Tokens of languages: M2M100's, mBART's and NLLB's."""


def is_encoder_decoder(config: Mapping[str, Any]) -> bool:
    """Return whether a config is of a model with an encoder for texts or sounds. A decoder that was saved alone says
    that it is none, whatever its type."""
    said = config.get("is_encoder_decoder")
    return config.get("model_type") in TYPES if said is None else bool(said)


def decoder_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of an encoder-decoder with its decoder's sizes under the names of a language model."""
    nested = config.get("decoder")
    if isinstance(nested, dict):
        return {**nested, "vocab_size": config.get("vocab_size", nested.get("vocab_size"))}
    renamed = {
        "num_hidden_layers": config.get("decoder_layers") or config.get("num_decoder_layers"),
        "num_attention_heads": config.get("decoder_attention_heads") or config.get("num_heads"),
        "intermediate_size": config.get("decoder_ffn_dim") or config.get("d_ff"),
        "hidden_size": config.get("d_model"),
        "vocab_size": config.get("decoder_vocab_size") or config.get("vocab_size"),
        "max_position_embeddings": config.get("max_target_positions"),
    }
    known = {name: value for name, value in config.items() if name not in _NO_LIMIT or not _is_t5(config)}
    return {**known, **{name: value for name, value in renamed.items() if value is not None}}


def _is_t5(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type")).endswith("t5")


def read_source_facts(config: Mapping[str, Any], folder: Path) -> SourceFacts:
    """Return the facts about an encoder-decoder in `folder`. Raise UnsupportedModelError for one that cannot be
    compiled, CheckpointError for a config that does not say how an answer begins."""
    model_type = config.get("model_type")
    if model_type not in TYPES:
        raise UnsupportedModelError(
            f"{folder / CONFIG}: received an encoder-decoder model of type {model_type!r}, expected a language model, "
            f"a decoder alone, or one of {', '.join(TYPES)}",
            hint="choose a model of one of these types",
        )
    if config.get("decoder_vocab_size") not in (None, config.get("vocab_size")):
        raise UnsupportedModelError(
            f"{folder / CONFIG}: received decoder_vocab_size: {config['decoder_vocab_size']!r} beside vocab_size: "
            f"{config.get('vocab_size')!r}, expected one vocabulary for source and answer",
            hint="choose a model whose encoder and decoder have the same tokens",
        )
    if model_type in speech.TYPES:
        return speech.read_speech_facts(config, folder)
    written = generation_rules(folder, config)
    languages = _languages(folder) if model_type in OF_LANGUAGES else {}
    keys = ("decoder_start_token_id", "bos_token_id")
    found = (_token(read, key, folder) for read in (written, config) for key in keys)
    start = next((token for token in found if token is not None), None)
    if start is None:
        raise wrong(folder / CONFIG, "no decoder_start_token_id", "the token with which answers begin")
    encoder = config.get("encoder")
    positions = (encoder if isinstance(encoder, dict) else config).get("max_position_embeddings")
    return SourceFacts(
        positions if isinstance(positions, int) else None,
        start,
        _token(written, "forced_bos_token_id", folder),
        languages,
        start in languages.values(),
    )


def hidden_tokens(folder: Path) -> tuple[int, ...]:
    """Return the tokens that no answer of an encoder-decoder for texts has: transformers' `suppress_tokens`, and each
    that is one of `bad_words_ids`, as Marian's padding. An end of a text is none of these."""
    config = read_json_object(folder / CONFIG) or {}
    if config.get("model_type") in speech.TYPES:
        return ()  # its rules are masks of the host
    written = generation_rules(folder, config)
    ends, words = written.get("eos_token_id"), written.get("bad_words_ids") or []
    ends = ends if isinstance(ends, list) else [ends]
    single = [word[0] for word in words if isinstance(word, list) and len(word) == 1 and word[0] not in ends]
    tokens = [*(written.get("suppress_tokens") or []), *single]
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise wrong(folder / GENERATION_CONFIG, f"tokens that no answer has: {tokens!r}"[:80], "lists of token ids")
    return tuple(sorted(set(tokens)))


def _token(config: Mapping[str, Any], key: str, folder: Path) -> int | None:
    value = config.get(key)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise wrong(folder / CONFIG, f"{key}: {value!r}", "a token id")


def _languages(folder: Path) -> dict[str, int]:
    """Return the languages that the tokenizer has a token for: the codes as they are written in it, without lines."""
    added = (read_json_object(folder / TOKENIZER) or {}).get("added_tokens") or []
    found = {}
    for token in added if isinstance(added, list) else []:
        match = _LANGUAGE.fullmatch(str(token.get("content"))) if isinstance(token, dict) else None
        if match and type(token.get("id")) is int:
            found[next(filter(None, match.groups()))] = token["id"]
    return found
