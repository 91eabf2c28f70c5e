"""Keys and reports of engines that nobody has built, for the tests of the cache."""

from pathlib import Path

from speccompile.compiler.engines import Settings, make_settings
from speccompile.compiler.engines.cache import Cache
from speccompile.compiler.engines.key import Key
from speccompile.contract import Graph, Tensor

GRAPH = Graph("verify", (Tensor("window", "int64", (1, "window"), "window", "io"),), ())
REPORT = {"bytes": 3, "aliases": {"größe": "x"}}


def settings(**changes) -> Settings:
    options = {"backend": "tensorrt_rtx", "compute_capability": "8.9", "precision": {"target": "int4"}, "tokens": 4}
    return make_settings(GRAPH, catch_up=2, prefill_chunk=16, max_length=32, **(options | changes))


def key_of(number: int) -> Key:
    return Key(1, 1, "1.7", "", GRAPH, settings(), {"": f"{number}"})


def put(cache: Cache, number: int, size: int = 1000) -> Path:
    """Put an engine into a cache, `size` bytes of that number. Returns its entry's folder."""
    engine = cache.folder.parent / "engine"
    engine.write_bytes(bytes([number]) * size)
    cache.store(key_of(number), engine, REPORT | {"number": number})
    return cache.folder / key_of(number).digest
