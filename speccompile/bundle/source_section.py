"""Check the section `source` of a manifest, which describes a target's encoder."""

from collections.abc import Iterator
from typing import Any

from speccompile.bundle.sources import AUDIO, FRAMES_PER_ROW, SOURCE, is_cross_state, shares_encoder
from speccompile.contract import ENCODE_SOURCE, SOURCE_ENCODERS, Graph
from speccompile.errors import BundleError

_REBUILD = "build the bundle again with this speccompile"

SECTION = "source"
"""Field of a manifest that is the section."""

FIELDS = ("forced_bos_token_id", "language_is_start", "languages", "max_length", "start_token_id")
"""Fields of the section. Speech recognition adds `audio`."""

AUDIO_SIZES = ("sampling_rate", "window", "hop", "mels", "frames")
AUDIO_TOKENS = ("suppressed", "begin_suppressed", "prompt")
NO_TIMES, MAX_INITIAL, PREVIOUS = OPTIONAL = ("no_timestamps", "max_initial_timestamp", "previous")
AUDIO_FIELDS = (*AUDIO_SIZES, *AUDIO_TOKENS, "tasks", *OPTIONAL)
"""Fields of the part `audio`: see `plan.sources.AudioFacts`."""

MOST = 2**24
"""Exclusive upper limit of every size."""


def check_source(section: object, where: str) -> dict[str, Any]:
    """Return the section. Raise BundleError naming `where` for a field that is missing, unknown or of another type."""
    if not isinstance(section, dict) or sorted(set(section) - {AUDIO}) != sorted(FIELDS):
        found = ", ".join(sorted(map(str, section))) if isinstance(section, dict) else type(section).__name__
        raise BundleError(f"{where}: expected the fields {', '.join(FIELDS)}, got {found}", hint=_REBUILD)
    for name in ("max_length", "start_token_id", "forced_bos_token_id"):
        value, least = section[name], 1 if name == "max_length" else 0
        if not (type(value) is int and value >= least) and not (value is None and name == "forced_bos_token_id"):
            raise BundleError(f"{where}: {name}: expected a number from {least} on, got {value!r}", hint=_REBUILD)
    languages = section["languages"]
    if not isinstance(languages, dict) or any(type(token) is not int for token in languages.values()):
        raise BundleError(f"{where}: languages: expected names and token ids, got {languages!r}", hint=_REBUILD)
    if type(section["language_is_start"]) is not bool:
        found = section["language_is_start"]
        raise BundleError(f"{where}: language_is_start: expected true or false, got {found!r}", hint=_REBUILD)
    if AUDIO in section:
        _check_audio(section[AUDIO], f"{where}: {AUDIO}")
    return section


def _check_audio(section: object, where: str) -> None:
    if not isinstance(section, dict) or sorted(section) != sorted(AUDIO_FIELDS):
        found = ", ".join(sorted(map(str, section))) if isinstance(section, dict) else type(section).__name__
        raise BundleError(f"{where}: expected what a target hears and writes, got {found}", hint=_REBUILD)
    for name in AUDIO_SIZES:
        if not (type(section[name]) is int and 1 <= section[name] < MOST):
            raise BundleError(f"{where}: {name}: expected a number from 1 on, got {section[name]!r}", hint=_REBUILD)
    lists = {name: section[name] for name in AUDIO_TOKENS} | {"tasks": _values(section["tasks"])}
    lists |= {name: [] if section[name] is None else [section[name]] for name in OPTIONAL}
    for name, tokens in lists.items():
        if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
            raise BundleError(f"{where}: {name}: expected token ids, got {section[name]!r}", hint=_REBUILD)


def _values(tasks: object) -> object:
    return list(tasks.values()) if isinstance(tasks, dict) else tasks


def first_timestamp(audio: dict[str, Any], vocabulary_size: int) -> int | None:
    """Return the token of the time 0.00 of a target with this part `audio`; None if it writes no times."""
    last = audio[NO_TIMES]
    return None if last is None or last + 1 >= vocabulary_size else int(last) + 1


def _tokens(section: dict[str, Any]) -> list[int]:
    """Return all token ids of a section."""
    found = [section["start_token_id"], section["forced_bos_token_id"] or 0, *section["languages"].values()]
    if AUDIO in section:
        audio = section[AUDIO]
        found += [
            *audio["tasks"].values(),
            *(audio[name] or 0 for name in (NO_TIMES, PREVIOUS)),
            *(token for name in AUDIO_TOKENS for token in audio[name]),
        ]
    return found


def _input_problems(section: dict[str, Any], graph: Graph) -> Iterator[str]:
    """Yield differences between the section and the inputs of a graph that encodes a source."""
    audio = section.get(AUDIO)
    wanted = SOURCE if audio is None else AUDIO
    read = [tensor for tensor in graph.inputs if tensor.role == "io"]
    if [tensor.name for tensor in read] != [wanted]:
        yield f"graph {graph.name!r}: reads {', '.join(tensor.name for tensor in read)}, expected {wanted}"
    elif audio is not None and tuple(read[0].shape[1:]) != (audio["mels"], audio["frames"]):
        yield f"graph {graph.name!r}: audio is {list(read[0].shape)}, source.audio {audio['mels']} x {audio['frames']}"
    elif audio is not None and audio["frames"] != FRAMES_PER_ROW * section["max_length"]:
        yield f"source.max_length: {section['max_length']} rows of {audio['frames']} frames"


def _shared_problems(section: dict[str, Any], graph: Graph, first: Graph) -> Iterator[str]:
    """Yield differences between the states that a graph without an encoder reads and those that `first` writes."""
    read = [tensor for tensor in graph.inputs if tensor.role != "state"]
    written = [tensor for tensor in first.outputs if tensor.role != "state"]
    if graph.name == first.name or read != written:
        has, wanted = (", ".join(f"{each.name} {list(each.shape)}" for each in side) for side in (read, written))
        yield f"graph {graph.name!r}: reads {has}, but {first.name!r} writes {wanted or 'nothing else'}"
    elif read[0].shape[1] != section["max_length"]:
        yield f"graph {graph.name!r}: {read[0].shape[1]} rows, source.max_length is {section['max_length']}"


def source_problems(section: dict[str, Any] | None, graphs: dict[str, Any], vocabulary_size: int) -> Iterator[str]:
    """Yield contradictions between the section and the manifest's graphs. graphs: by name."""
    encoders = [name for name in SOURCE_ENCODERS if name in graphs]
    if (section is None) != (ENCODE_SOURCE not in graphs):
        yield f"source: {'none' if section is None else 'a section'}, but graphs are {', '.join(graphs)}"
    if section is None:
        return
    tokens = _tokens(section)
    if not all(0 <= token < vocabulary_size for token in tokens):
        yield f"source: token ids {sorted(set(tokens))}, expected ids below {vocabulary_size}"
    for name in encoders:
        if shares_encoder(graphs[name]):
            yield from _shared_problems(section, graphs[name], graphs[ENCODE_SOURCE])
        else:
            yield from _input_problems(section, graphs[name])
        for state in (tensor for tensor in graphs[name].outputs if tensor.role == "state"):
            if not is_cross_state(state.buffer):
                yield f"graph {name!r}: the output {state.name!r} holds no rows of a source"
            elif state.shape[2] != section["max_length"]:
                yield f"graph {name!r}: {state.name!r} has {state.shape[2]} rows, source.max_length is " + str(
                    section["max_length"]
                )
