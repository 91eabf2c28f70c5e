"""A small bundle that has everything a bundle can have, for the tests of those who read and write bundles."""

from dataclasses import replace
from pathlib import Path

from speccompile import contract
from speccompile.bundle import BundleWriter, EngineEntry, Manifest
from speccompile.bundle.manifest import FORMAT, TensorRTBuild
from speccompile.bundle.media import MEDIA, MEDIA_ROWS
from speccompile.contract import BATCH, Graph, Tensor, with_cache_dtypes, with_fixed_batch
from speccompile.machine.formats.image_settings import ImageSettings

LOCK = {"versions": {"torch": "2.13.0"}, "inputs": {"target": {"model.safetensors": "ab12"}}}
PROOF = {"speculative": {"prompts": 3, "equal": 3}, "prompts": ["def", "größe", "你好"]}
WEIGHTS = bytes(range(256)) * 8


def verify_graph() -> Graph:
    window = Tensor("window", "int64", (1, "window"), "window", "io")
    cache = Tensor("target.key.0", "float32", (1, 2, 160, 4), "target.key.0", "state")
    counts = [Tensor(name, "int64", (1,), name, "io") for name in ("n_given", "n_total", "length", "n_path")]
    rows = Tensor("logit_rows", "int64", ("logit_rows",), "logit_rows", "index")
    path = Tensor("path", "int64", (1, "window+1"), "path", "io")
    committed = Tensor("target.key.0.out", "float32", (1, 2, 160, 4), "target.key.0", "state")
    logits = Tensor("logits", "float32", (1, "logit_rows", 100), "logits", "optional")
    return Graph("verify", (window, cache, *counts[:3], rows), (path, committed, counts[3], logits))


def several_rows() -> dict[str, object]:
    """Return changes of `manifest`: those of a bundle for three rows, which engines on a processor may run apart."""

    def named(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(BATCH, *tensor.shape[1:])) if tensor.role != "index" else tensor

    verify = verify_graph()
    graph = Graph("verify", tuple(map(named, verify.inputs)), tuple(map(named, verify.outputs)))
    files = {"verify": "graphs/verify.onnx"}
    engines = (cpu_entry((graph,), files), cpu_entry((with_fixed_batch(graph, 3),), files, "at once"))
    return {"batch_size": 3, "graphs": (graph,), "engines": engines}


def constrained() -> dict[str, object]:
    """Return changes of `manifest`: those of a bundle that takes constraints."""
    verify = verify_graph()
    allowed = Tensor("allowed", "bool", (1, "logit_rows", "allowed"), "allowed", "io")
    graph = replace(verify, inputs=(*verify.inputs, allowed))
    return {"graphs": (graph,), "engines": (cpu_entry((graph,), {"verify": "graphs/verify.onnx"}),)}


def pictured(precision: str) -> dict[str, object]:
    """Return changes of `manifest`: those of a bundle that sees pictures, encoded in a precision."""
    verify = verify_graph()
    media = (
        Tensor(MEDIA, "float32", ("media", 8), MEDIA, "io"),
        Tensor(MEDIA_ROWS, "int64", (1, "window"), MEDIA_ROWS, "io"),
    )
    graph = replace(verify, inputs=(*verify.inputs, *media))
    images = ImageSettings(
        "gemma3", 9, "<image>", 8, 4, (224, 448), "bilinear", 1 / 255, (0.5,) * 3, (0.5,) * 3, precision=precision
    )
    plan = {"verify": {"parameters": {}}, "images": images.to_json()}
    return {"graphs": (graph,), "engines": (cpu_entry((graph,), {"verify": "graphs/verify.onnx"}),), "plan": plan}


def manifest(**changes: object) -> Manifest:
    values: dict[str, object] = {
        "format": FORMAT,
        "contract": contract.VERSION,
        "speccompile": "0.1.0",
        "name": "demo",
        "exact": True,
        "decoding": "greedy",
        "method": "exact",
        "batch_size": 1,
        "max_length": 32,
        "prefill_chunk": 16,
        "tokens": 4,
        "tree": "chain",
        "depth": 4,
        "sample": False,
        "catch_up": 2,
        "vocabulary_size": 100,
        "eos_token_ids": (2, 3),
        "tokenizer": True,
        "graphs": (verify_graph(),),
        "engines": (cpu_entry((verify_graph(),), {"verify": "graphs/verify.onnx"}),),
        "plan": {"name": "größe", "verify": {"method": "exact", "exact": True, "parameters": {}}},
    }
    return Manifest(**(values | changes))  # type: ignore[arg-type]


def cpu_entry(graphs: tuple[Graph, ...], files: dict[str, str], name: str = "onnxruntime-cpu") -> EngineEntry:
    return EngineEntry(name, "onnxruntime", "cpu", files, {"target": "float32", "drafter": "float32"}, graphs)


def tensorrt_entries() -> tuple[EngineEntry, EngineEntry]:
    """Return one that is built later, and one that was built."""
    window = {"profile": {"window": [[1, 1], [1, 5], [1, 16]]}}
    reports = {"verify": window | {"builder": "tensorrt 10.15", "inputs": [{"name": "window"}] * 2}}
    half = (with_cache_dtypes(verify_graph(), {"target": "float16"}),)
    deferred = EngineEntry(
        "later", "tensorrt", "cuda", {}, {"target": "float16"}, half, "9.0",
        TensorRTBuild("no GPU", {"verify": "graphs/verify.onnx"}, {"verify": window | {"tf32": False}}, {}),
    )  # fmt: skip
    built = replace(
        deferred, name="now", files={"verify": "graphs/verify.onnx"}, build=TensorRTBuild("", {}, {}, reports)
    )
    return deferred, built


def fill(folder: Path) -> None:
    (folder / "graphs").mkdir()
    (folder / "graphs" / "verify.onnx").write_bytes(b"graph")
    (folder / "graphs" / "weights.bin").write_bytes(WEIGHTS)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_bytes(b"{}")


def write_bundle(output: Path, **changes: object) -> Path:
    with BundleWriter(output) as writer:
        fill(writer.folder)
        writer.finish(manifest(**changes), LOCK, PROOF)
    return output
