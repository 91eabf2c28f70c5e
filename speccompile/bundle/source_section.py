"""The section `source` of a manifest, which bundles of targets with an encoder have, and its consistency."""

from collections.abc import Iterator
from typing import Any

from speccompile.bundle.sources import CROSS_KINDS
from speccompile.contract import ENCODE_SOURCE, SOURCE_ENCODERS
from speccompile.errors import BundleError

_REBUILD = "build the bundle again with this speccompile"

FIELDS = ("forced_bos_token_id", "language_is_start", "languages", "max_length", "start_token_id")
"""Fields of the section."""


def check_source(section: object, where: str) -> dict[str, Any]:
    """Return the section. Raise BundleError naming `where` for a field that is missing,
    unknown or of another type."""
    if not isinstance(section, dict) or sorted(section) != sorted(FIELDS):
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
    return section


def source_problems(section: dict[str, Any] | None, graphs: dict[str, Any], vocabulary_size: int) -> Iterator[str]:
    """Yield where a section, of a manifest with these graphs by name, contradicts them."""
    encoders = [name for name in SOURCE_ENCODERS if name in graphs]
    if (section is None) != (ENCODE_SOURCE not in graphs):
        yield f"source: {'none' if section is None else 'a section'}, but graphs are {', '.join(graphs)}"
    if section is None:
        return
    tokens = (section["start_token_id"], section["forced_bos_token_id"] or 0, *section["languages"].values())
    if not all(0 <= token < vocabulary_size for token in tokens):
        yield f"source: token ids {sorted(set(tokens))}, expected ids below {vocabulary_size}"
    for name in encoders:
        for state in (tensor for tensor in graphs[name].outputs if tensor.role == "state"):
            if not any(kind in state.buffer.split(".") for kind in CROSS_KINDS):
                yield f"graph {name!r}: the output {state.name!r} holds no rows of a source"
            elif state.shape[2] != section["max_length"]:
                yield f"graph {name!r}: {state.name!r} has {state.shape[2]} rows, source.max_length is " + str(
                    section["max_length"]
                )
