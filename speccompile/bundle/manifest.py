"""manifest.json: the description of a bundle in the terms of the contract, and canonical JSON."""

import dataclasses
import json
from collections.abc import Container
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from speccompile.bundle.buffers import buffers
from speccompile.bundle.media import ENCODE_IMAGE
from speccompile.bundle.sampling import ADJUSTED
from speccompile.bundle.source_section import SECTION, check_source
from speccompile.contract import Graph, Tensor
from speccompile.errors import BundleError

FORMAT = 3
"""Version of the folder's layout and of its JSON files. A reader refuses bundles of another version."""

MANIFEST = "manifest.json"
LOCK = "lock.json"
PROOF = "proof.json"
TOKENIZER = "tokenizer/tokenizer.json"
CHAT = "tokenizer/chat.json"
DEFAULT_TEMPLATE, TOOL_TEMPLATE = "default", "tool_use"
"""Names of chat templates that transformers gives a meaning: of conversations, and of those with tools."""

BACKENDS = ("onnxruntime", "tensorrt_rtx", "tensorrt")
"""Libraries that run an engine's files."""
PROVIDERS = ("cpu", "cuda", "nv_tensorrt_rtx")
"""Execution providers of engines."""
DECODINGS = ("greedy", "sampling")
TREES = ("chain", "static", "dynamic")

_REBUILD = "build the bundle again with this speccompile"

T = TypeVar("T")


def canonical_json(data: object) -> bytes:
    """Return the bytes of a JSON file: equal data gives equal bytes. Raise ValueError for NaN and infinity."""
    text = json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


@dataclass(frozen=True)
class TensorRTBuild:
    """Build record of a TensorRT engine, which may be built later on the device.

    deferred: why it is not built yet, "" when it is. sources: graph name -> lowered ONNX, for `speccompile finish`.
    settings, reports: graph name -> the exact settings of the builder, and its report on the engine.
    """

    deferred: str
    sources: dict[str, str]
    settings: dict[str, Any]
    reports: dict[str, Any]


@dataclass(frozen=True)
class EngineEntry:
    """One engine of the bundle.

    files: graph name -> path in the bundle, empty while the engine is deferred. precision: component ("target",
    "drafter") -> name of its precision. graphs: the round's graphs with this engine's dtypes, and the encoder's in an
    engine of TensorRT for a target that sees pictures. build: for the TensorRT backends only.
    """

    name: str
    backend: str
    provider: str
    files: dict[str, str]
    precision: dict[str, str]
    graphs: tuple[Graph, ...]
    compute_capability: str | None = None
    build: TensorRTBuild | None = None

    @property
    def deferred(self) -> str:
        """Return the reason why the engine is not built yet, or ""."""
        return self.build.deferred if self.build else ""

    @property
    def round(self) -> "EngineEntry":
        """Return the engine without the encoder of pictures, which runs once before the rounds."""
        files = {name: file for name, file in self.files.items() if name != ENCODE_IMAGE}
        return replace(self, files=files, graphs=tuple(each for each in self.graphs if each.name != ENCODE_IMAGE))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"graphs": [graph.to_json() for graph in self.graphs]}


def engine_files(engine: EngineEntry) -> list[str]:
    """Return every graph or engine file of an entry: those that the runtime opens, and the sources for `speccompile
    finish`."""
    return [*engine.files.values(), *(engine.build.sources.values() if engine.build else ())]


@dataclass(frozen=True)
class Manifest:
    """Properties of a bundle that the runtime needs before it opens an engine.

    tokens: drafts per round, all branches together; 0 without a drafter. tree: "chain", "static" or "dynamic". depth:
    maximum number of drafts that a round can accept. sample: whether drafts are sampled instead of the drafter's best.
    catch_up: tokens of the drafter's catch-up while decoding, 0 without one. max_length and prefill_chunk are in
    tokens. graphs: the round's graphs, before any engine's precision. plan: every decided value of the recipe,
    human-readable. rings: buffer of a cache that is a ring -> number of its latest positions that are read; position p
    stands in row p mod the number of rows. source: see `source_section`.
    """

    format: int
    contract: int
    speccompile: str
    name: str
    exact: bool
    decoding: str
    method: str
    batch_size: int
    max_length: int
    prefill_chunk: int
    tokens: int
    tree: str
    depth: int
    sample: bool
    catch_up: int
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]
    tokenizer: bool
    graphs: tuple[Graph, ...]
    engines: tuple[EngineEntry, ...]
    plan: dict[str, Any]
    source: dict[str, Any] | None = None
    rings: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def adjusts_logits(self) -> bool:
        """Return whether graphs take logit biases, frequency and presence penalties."""
        return any(tensor.name == ADJUSTED for graph in self.graphs for tensor in graph.inputs)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest in plain JSON values, as in the file."""
        data = dataclasses.asdict(self) | {
            "graphs": [graph.to_json() for graph in self.graphs],
            "engines": [engine.to_json() for engine in self.engines],
            "buffers": [dataclasses.asdict(buffer) for buffer in buffers(self.graphs)],
        }
        data = {name: value for name, value in data.items() if value or name not in {*OPTIONAL, *SECTIONS}}
        plain: dict[str, Any] = json.loads(canonical_json(data))
        return plain

    @classmethod
    def from_json(cls, data: object, file: str = MANIFEST) -> "Manifest":
        """Parse the result of `to_json`. Raise BundleError naming `file` and the field that is missing, unknown or
        wrong."""
        sections = {name: data[name] for name in SECTIONS if name in data} if isinstance(data, dict) else {}
        plain = dict(check_record("manifest", _without(data, sections), file))
        if SECTION in sections:
            plain[SECTION] = check_source(sections[SECTION], f"{file}: {SECTION}")
        written = plain.pop("buffers")
        plain["eos_token_ids"] = tuple(plain["eos_token_ids"])
        plain["graphs"] = tuple(_graph(*item) for item in _inner(plain["graphs"], f"{file}: graphs"))
        plain["engines"] = tuple(_engine(*item) for item in _inner(plain["engines"], f"{file}: engines"))
        manifest = cls(**plain)
        if canonical_json(written) != canonical_json(manifest.to_json()["buffers"]):  # True is no 1
            raise BundleError(f"{file}: buffers are not those of its graphs", hint=_REBUILD)
        return manifest


@dataclass(frozen=True)
class Field:
    """A field of a JSON object.

    kind: its type. items: allowed types of a list's items or an object's values; () for any. record: name in RECORDS of
    the fields of its value, or of each item; "" for none. nullable: whether it may be null. optional: whether it may be
    missing.
    """

    name: str
    kind: type
    items: tuple[type, ...] = ()
    record: str = ""
    nullable: bool = False
    optional: bool = False


_NAMES = {Tensor: "tensor", Graph: "graph", TensorRTBuild: "build", EngineEntry: "engine", Manifest: "manifest"}
"""Classes -> names of their records, each after the records that it contains."""

OPTIONAL = ("rings",)
"""Fields of a manifest that are left out when empty, as in bundles of older versions."""

_WRITTEN = {Graph: (Field("aliases", dict, (str,)),), Manifest: (Field("buffers", list),)}
"""Fields that `to_json` adds to those of a class, for other readers."""


SECTIONS = (SECTION,)
"""Fields of a manifest that only some bundles have. Each is checked by a module of its own."""


def _without(data: object, names: Container[str]) -> object:
    """Return an object without some of its fields, any other value as it is."""
    return {key: value for key, value in data.items() if key not in names} if isinstance(data, dict) else data


def _field(name: str, hint: Any) -> Field:
    """Return the field for a class attribute of type `hint`."""
    inner = get_args(hint)
    if NoneType in inner:
        return replace(_field(name, inner[0]), nullable=True)
    if get_origin(hint) is dict:
        return Field(name, dict, inner[1:] if inner[1] in (str, int) else (), optional=name in OPTIONAL)
    if get_origin(hint) is tuple and inner[0] in _NAMES:
        return Field(name, list, record=_NAMES[inner[0]])
    if get_origin(hint) is tuple:
        return Field(name, list, get_args(inner[0]) or inner[:1])
    return Field(name, dict, record=_NAMES[hint]) if hint in _NAMES else Field(name, hint)


RECORDS = {
    name: (*(_field(*each) for each in get_type_hints(cls).items() if each[0] not in SECTIONS), *_WRITTEN.get(cls, ()))
    for cls, name in _NAMES.items()
}
"""Fields of the JSON objects of a manifest. They are checked here, and in C++ by a table that
`scripts/contract_header.py` makes from them."""


def check_record(record: str, data: object, where: str) -> dict[str, Any]:
    """Return the object `data`. Raise BundleError, naming the location, unless it has exactly the fields of a record,
    with their types."""
    found: dict[str, Any] = _typed(data, dict, where)
    left = dict(found)
    for field in RECORDS[record]:
        if field.name not in left and field.optional:
            continue
        if field.name not in left:
            raise BundleError(f"{where}: the field {field.name!r} is missing", hint=_REBUILD)
        value = left.pop(field.name)
        if value is not None or not field.nullable:
            _check_value(field, value, f"{where}: {field.name}")
    if left:
        names = ", ".join(repr(name) for name in sorted(left))
        raise BundleError(f"{where}: unknown field {names}", hint=_REBUILD)
    return found


def _check_value(field: Field, value: Any, where: str) -> None:
    _typed(value, field.kind, where)
    if field.record and field.kind is dict:
        check_record(field.record, value, where)
        return
    for item, place in _inner(value, where):
        if field.record:
            check_record(field.record, item, place)
        elif field.items and type(item) not in field.items:
            _typed(item, field.items[0], place)


def _inner(value: Any, where: str) -> list[tuple[Any, str]]:
    """Return the items of a list or values of an object, each with its location in words."""
    if isinstance(value, list):
        return [(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return [(item, f"{where}.{key}") for key, item in value.items()] if isinstance(value, dict) else []


def _typed(value: Any, kind: type[T], where: str) -> T:
    # not isinstance: a JSON `true` is no number
    if type(value) is not kind:
        raise BundleError(f"{where}: expected {kind.__name__}, got {type(value).__name__} {value!r}", hint=_REBUILD)
    return value


def _engine(data: dict[str, Any], where: str) -> EngineEntry:
    graphs = tuple(_graph(*item) for item in _inner(data["graphs"], f"{where}: graphs"))
    build = None if data["build"] is None else TensorRTBuild(**data["build"])
    return EngineEntry(**data | {"graphs": graphs, "build": build})


def _graph(data: dict[str, Any], where: str) -> Graph:
    graph = Graph.from_json(data)
    if data["aliases"] != (aliases := _aliases(graph, where)):
        raise BundleError(
            f"{where}: aliases are {data['aliases']}, its inputs and outputs say {aliases}", hint=_REBUILD
        )
    return graph


def _aliases(graph: Graph, where: str) -> dict[str, str]:
    try:
        return graph.aliases
    except KeyError as error:
        raise BundleError(
            f"{where}: an output updates the state {error}, which no input reads", hint=_REBUILD
        ) from None
