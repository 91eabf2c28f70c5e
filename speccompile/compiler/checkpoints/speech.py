"""Whisper's checkpoints: what the features of a sound are made of, and how a transcript begins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG, GENERATION_CONFIG, generation_rules
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.json_files import read_json_object, wrong
from speccompile.plan.sources import AudioFacts, SourceFacts

TYPES = ("whisper",)
"""Values of `model_type` of encoder-decoders that hear."""

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
_FRAMES_PER_ROW = 2
"""As in `bundle.sources`, which files of checkpoints are read without."""
_DEFAULTS = {"sampling_rate": 16_000, "hop_length": 160, "n_fft": 400}
_ALTERED = {"dither": 0.0, "do_normalize": False, "padding_value": 0.0}
"""Settings of transformers' feature extractor that change features otherwise, and the values at which they do not."""


def read_speech_facts(config: Mapping[str, Any], folder: Path) -> SourceFacts:
    """Return the facts about a Whisper in `folder`. Raise UnsupportedModelError for features that are made otherwise,
    CheckpointError for files with other values than numbers."""
    written = generation_rules(folder, config)
    settings = _settings(folder)
    rows, mels = (_count(config.get(key), key, folder / CONFIG) for key in ("max_source_positions", "num_mel_bins"))
    for key, value in _ALTERED.items():
        if settings.get(key, value) != value:
            raise UnsupportedModelError(
                f"{folder / PREPROCESSOR}: received {key}: {settings[key]!r}, expected {value!r}",
                hint="choose a model whose features are Whisper's",
            )
    size = settings.get("feature_size", mels)
    if size != mels:
        raise wrong(folder / PREPROCESSOR, f"feature_size: {size!r}", f"num_mel_bins of {CONFIG}, {mels}")
    rate, hop, window = (
        _count(settings.get(key, default), key, folder / PREPROCESSOR) for key, default in _DEFAULTS.items()
    )
    key = "decoder_start_token_id"
    start = _token(written.get(key, config.get(key)), key, folder)
    languages = _named(written, "lang_to_id", folder)
    audio = AudioFacts(
        rate, window, hop, mels, _FRAMES_PER_ROW * rows, _named(written, "task_to_id", folder),
        _optional(written, "no_timestamps_token_id", folder), _list(written, "suppress_tokens", folder),
        _list(written, "begin_suppress_tokens", folder), () if languages else _forced(written, folder),
        _optional(written, "max_initial_timestamp_index", folder), _previous(written, folder),
    )  # fmt: skip
    return SourceFacts(rows, start, None, languages, audio=audio)


def _settings(folder: Path) -> dict[str, Any]:
    own = read_json_object(folder / PREPROCESSOR)
    if own is None:
        nested = (read_json_object(folder / PROCESSOR) or {}).get("feature_extractor")
        own = nested if isinstance(nested, dict) else {}
    return own


def _count(value: Any, key: str, path: Path) -> int:
    if type(value) is int and value > 0:
        return value
    raise wrong(path, f"{key}: {value!r}", "a whole number above zero")


def _token(value: Any, key: str, folder: Path) -> int:
    if type(value) is int and value >= 0:
        return value
    raise wrong(folder / GENERATION_CONFIG, f"{key}: {value!r}", "a token id")


def _optional(written: Mapping[str, Any], key: str, folder: Path) -> int | None:
    return None if written.get(key) is None else _token(written[key], key, folder)


def _previous(written: Mapping[str, Any], folder: Path) -> int | None:
    """Return the token behind which the text before a sound stands: by default the last but one of the suppressed ones,
    as transformers takes it for configs without its name."""
    suppressed = _list(written, "suppress_tokens", folder)
    found = _optional(written, "prev_sot_token_id", folder)
    return suppressed[-2] if found is None and len(suppressed) > 1 else found


def _list(written: Mapping[str, Any], key: str, folder: Path) -> tuple[int, ...]:
    found = written.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise wrong(folder / GENERATION_CONFIG, f"{key}: {found!r}", "a list of token ids")
    return tuple(_token(each, key, folder) for each in found)


def _named(written: Mapping[str, Any], key: str, folder: Path) -> dict[str, int]:
    """Return the tokens of languages or tasks by their names: `<|en|>` is en."""
    found = written.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise wrong(folder / GENERATION_CONFIG, f"{key}: {found!r}", "names and token ids")
    return {str(name).removeprefix("<|").removesuffix("|>"): _token(id_, key, folder) for name, id_ in found.items()}


def _forced(written: Mapping[str, Any], folder: Path) -> tuple[int, ...]:
    """Return the tokens behind the start token that a config forces: [[1, 50362]] forces the second one."""
    pairs = written.get("forced_decoder_ids") or []
    if not all(isinstance(pair, list) and len(pair) == 2 and pair[0] == place for place, pair in enumerate(pairs, 1)):
        raise wrong(folder / GENERATION_CONFIG, f"forced_decoder_ids: {pairs!r}", "places from 1 on and their tokens")
    return tuple(_token(token, "forced_decoder_ids", folder) for _, token in pairs)
