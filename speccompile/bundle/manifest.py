"""manifest.json: what a bundle is, in the terms of the contract; and the one way in which JSON files are written."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from speccompile.contract import Graph, buffers
from speccompile.errors import BundleError

FORMAT = 3
"""Version of the folder's layout and of its JSON files. A reader refuses bundles with another one."""

MANIFEST = "manifest.json"
LOCK = "lock.json"
PROOF = "proof.json"
TOKENIZER = "tokenizer/tokenizer.json"
CHAT = "tokenizer/chat.json"

_REBUILD = "build the bundle again with this speccompile"

T = TypeVar("T")


def canonical_json(data: object) -> bytes:
    """The bytes of a JSON file: equal data gives equal bytes. Raises ValueError for NaN and infinity."""
    text = json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


@dataclass(frozen=True)
class TensorRTBuild:
    """How a TensorRT engine was built, or will be on the device.

    deferred: why it is not built yet, "" when it is. sources: graph name -> lowered ONNX, for `speccompile finish`.
    settings, reports: graph name -> the exact settings of the builder, and what it said of the engine it built.
    """

    deferred: str
    sources: dict[str, str]
    settings: dict[str, Any]
    reports: dict[str, Any]


@dataclass(frozen=True)
class EngineEntry:
    """One engine of the bundle.

    files: graph name -> path in the bundle, none while the engine is deferred. precision: part ("target", "drafter") ->
    word. graphs: the round's graphs with this engine's dtypes. build: for the TensorRT backends only.
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
        """Why the engine is not built yet; "" when it is."""
        return self.build.deferred if self.build else ""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"graphs": [graph.to_json() for graph in self.graphs]}


def files_of(engine: EngineEntry) -> list[str]:
    """Every graph or engine file of an entry: what the runtime opens, and what `speccompile finish` builds from."""
    return [*engine.files.values(), *(engine.build.sources.values() if engine.build else ())]


@dataclass(frozen=True)
class Manifest:
    """What the runtime must know before it opens an engine.

    tokens: drafts per round, all branches together; 0 without a drafter. tree: "chain", "static" or "dynamic". depth:
    the most drafts that a round can accept. sample: whether drafts are drawn, not the drafter's best. catch_up: tokens
    that the drafter catches up over when decoding, 0 without one. max_length and prefill_chunk are in tokens. graphs:
    the round's, before any engine's precision. plan: every decided value of the recipe, for people.
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

    def to_json(self) -> dict[str, Any]:
        """The manifest in plain JSON values: what the file holds."""
        data = dataclasses.asdict(self) | {
            "graphs": [graph.to_json() for graph in self.graphs],
            "engines": [engine.to_json() for engine in self.engines],
            "buffers": [dataclasses.asdict(buffer) for buffer in buffers(self.graphs)],
        }
        plain: dict[str, Any] = json.loads(canonical_json(data))
        return plain

    @classmethod
    def from_json(cls, data: object, file: str = MANIFEST) -> "Manifest":
        """Inverse of `to_json`. Raises BundleError naming `file` and the field that is missing, unknown or wrong."""
        fields = _Fields(data, file)
        plain = {
            name: fields.take(name, kind) for name, kind in get_type_hints(cls).items() if kind in (int, str, bool)
        }
        manifest = cls(
            **plain,
            eos_token_ids=fields.take_list("eos_token_ids", int),
            graphs=tuple(_graph(*item) for item in fields.take_items("graphs")),
            engines=tuple(_engine(*item) for item in fields.take_items("engines")),
            plan=fields.take("plan", dict),
        )
        written = fields.take("buffers", list)
        fields.finish()
        if written != manifest.to_json()["buffers"]:
            raise BundleError(f"{file}: buffers are not those of its graphs", hint=_REBUILD)
        return manifest


class _Fields:
    """The fields of one JSON object, taken one by one; `finish` refuses what is left over."""

    def __init__(self, data: object, where: str) -> None:
        self._left: dict[str, Any] = dict(_typed(data, dict, where))
        self._where = where

    def take(self, name: str, kind: type[T]) -> T:
        if name not in self._left:
            raise BundleError(f"{self._where}: the field {name!r} is missing", hint=_REBUILD)
        return _typed(self._left.pop(name), kind, f"{self._where}: {name}")

    def take_or_none(self, name: str, kind: type[T]) -> T | None:
        if name in self._left and self._left[name] is None:
            return self._left.pop(name)  # type: ignore[no-any-return]
        return self.take(name, kind)

    def take_list(self, name: str, kind: type[T]) -> tuple[T, ...]:
        return tuple(_typed(item, kind, where) for item, where in self.take_items(name))

    def take_items(self, name: str) -> list[tuple[Any, str]]:
        """The items of a list, each with the words that say where it stands."""
        return [(item, f"{self._where}: {name}[{index}]") for index, item in enumerate(self.take(name, list))]

    def take_texts(self, name: str) -> dict[str, str]:
        texts = self.take(name, dict)
        return {key: _typed(text, str, f"{self._where}: {name}.{key}") for key, text in texts.items()}

    def finish(self) -> None:
        if self._left:
            names = ", ".join(repr(name) for name in sorted(self._left))
            raise BundleError(f"{self._where}: unknown field {names}", hint=_REBUILD)


def _typed(value: Any, kind: type[T], where: str) -> T:
    # not isinstance: a JSON `true` is no number
    if type(value) is not kind:
        raise BundleError(f"{where}: expected {kind.__name__}, got {type(value).__name__} {value!r}", hint=_REBUILD)
    return value


def _engine(data: object, where: str) -> EngineEntry:
    fields = _Fields(data, where)
    name, backend, provider = (fields.take(name, str) for name in ("name", "backend", "provider"))
    engine = EngineEntry(
        name=name,
        backend=backend,
        provider=provider,
        files=fields.take_texts("files"),
        precision=fields.take_texts("precision"),
        graphs=tuple(_graph(*item) for item in fields.take_items("graphs")),
        compute_capability=fields.take_or_none("compute_capability", str),
        build=_build(fields.take_or_none("build", dict), f"{where}: build"),
    )
    fields.finish()
    return engine


def _build(data: dict[str, Any] | None, where: str) -> TensorRTBuild | None:
    if data is None:
        return None
    fields = _Fields(data, where)
    build = TensorRTBuild(
        deferred=fields.take("deferred", str),
        sources=fields.take_texts("sources"),
        settings=fields.take("settings", dict),
        reports=fields.take("reports", dict),
    )
    fields.finish()
    return build


def _graph(data: Any, where: str) -> Graph:
    fields = _Fields(data, where)
    fields.take("name", str)
    for item, place in fields.take_items("inputs") + fields.take_items("outputs"):
        _check_tensor(item, place)
    written = fields.take_texts("aliases")
    fields.finish()
    graph = Graph.from_json(data)
    if written != (aliases := _aliases(graph, where)):
        raise BundleError(f"{where}: aliases are {written}, its inputs and outputs say {aliases}", hint=_REBUILD)
    return graph


def _check_tensor(data: object, where: str) -> None:
    fields = _Fields(data, where)
    for name in ("name", "dtype", "buffer", "role"):
        fields.take(name, str)
    for size, place in fields.take_items("shape"):
        if not isinstance(size, str):
            _typed(size, int, place)
    fields.finish()


def _aliases(graph: Graph, where: str) -> dict[str, str]:
    try:
        return graph.aliases
    except KeyError as error:
        raise BundleError(
            f"{where}: an output updates the state {error}, which no input reads", hint=_REBUILD
        ) from None
