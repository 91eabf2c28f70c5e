"""ONNX -> TensorRT engine, for both flavours: the TensorRT module is an argument.

Runs in the calling process, which a crash of the builder ends. `process.build` runs it in a separate one.
"""

import os
import re
import time
from pathlib import Path
from typing import Any

from speccompile.compiler.engines import network as networks
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.memory import read_memory
from speccompile.compiler.engines.memory_estimate import demand_of
from speccompile.compiler.engines.messages import BUILDING, Messages, fused_layers, make_logger, write_stderr
from speccompile.compiler.engines.settings import Settings
from speccompile.contract import Graph
from speccompile.errors import EngineError


def build_engine(
    trt: Any, onnx: Path, graph: Graph, settings: Settings, output: Path, limits: Limits
) -> dict[str, Any]:
    """Build the engine of one graph of the contract into `output`. Return the report.

    The report: inputs, outputs (name, dtype, shape; -1 is a dynamic size), profile, aliases, parsed_layers, fusion (see
    `fused_layers`), weight_bytes (of the graph), seconds, bytes, peak_memory_bytes (of this process, mapped weights
    included), builder. Raise EngineError if the builder refuses the graph, the network differs from the contract or its
    build needs more memory than the limits allow, OSError if `output` cannot be written, and then leave a partial file.
    """
    start = time.perf_counter()
    logger = make_logger(trt)
    logger.messages = Messages()
    builder = trt.Builder(logger)
    network = builder.create_network(_flags(trt, settings))
    write_stderr(f"parsing {onnx.name}")
    _parse(trt, network, logger, onnx)
    interface = networks.describe(network)
    networks.check(network, interface, graph)
    demand = demand_of(network)
    demand.check(settings.backend, limits)
    if settings.decomposable_attention:
        _decompose_attention(trt, network)
    config = _config(trt, builder, settings)
    write_stderr(BUILDING)
    _build(trt, builder, network, config, output)
    return {
        **interface,
        "profile": settings.to_json()["profile"],
        "fusion": fused_layers(logger.messages.layers),
        "weight_bytes": demand.weights,
        "seconds": round(time.perf_counter() - start, 3),
        "bytes": output.stat().st_size,
        "peak_memory_bytes": read_memory().peak,
        "builder": f"{settings.backend} {trt.__version__}",
    }


def _flags(trt: Any, settings: Settings) -> int:
    # TensorRT 11 types every network strongly; the flag may be gone.
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 1 << int(flag) if settings.strongly_typed and flag is not None else 0


def _parse(trt: Any, network: Any, logger: Any, onnx: Path) -> None:
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(onnx)):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    what = "; ".join(f" at {_node(error)}: {_first_line(error.desc())}" for error in errors) or ": it gave no reason"
    raise EngineError(
        f"the parser refused the graph{what}",
        hint="choose another backend for this engine, or what keeps this operator out of the graph",
    )


def _node(error: Any) -> str:
    return f"node {error.node_name()!r} ({error.node_operator()})" if error.node() >= 0 else "the file"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _decompose_attention(trt: Any, network: Any) -> None:
    for layer in network:
        if layer.type == trt.LayerType.ATTENTION_INPUT:
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True


def _config(trt: Any, builder: Any, settings: Settings) -> Any:
    config = builder.create_builder_config()
    config.profiling_verbosity = getattr(trt.ProfilingVerbosity, settings.profiling_verbosity)
    if not settings.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if settings.backend == "tensorrt_rtx":
        config.num_compute_capabilities = 1
        config.set_compute_capability(_capability(trt, settings.compute_capability), 0)
    if settings.profile:
        profile = builder.create_optimization_profile()
        for name, shapes in settings.profile.items():
            profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    return config


def _capability(trt: Any, word: str | None) -> Any:
    members = {_as_word(name): member for name, member in trt.ComputeCapability.__members__.items() if _as_word(name)}
    if word not in members:
        raise EngineError(
            f"received compute capability {word}, expected one that tensorrt_rtx {trt.__version__} builds for: "
            f"{', '.join(members)}",
            hint="set the engine's compute_capability to that of the GPU that will run it",
        )
    return members[word]


def _as_word(member: str) -> str:
    """Map SM89 -> 8.9, SM120 -> 12.0; "" for a member that is no capability."""
    found = re.fullmatch(r"SM(\d+)(\d)", member)
    return f"{found[1]}.{found[2]}" if found else ""


def _build(trt: Any, builder: Any, network: Any, config: Any, output: Path) -> None:
    """Write the engine while it is serialized: otherwise memory would hold it twice."""
    messages: Messages = builder.logger.messages
    with output.open("wb") as file:

        class Writer(trt.IStreamWriter):  # type: ignore[misc]  # the module is an argument
            def __init__(self) -> None:
                trt.IStreamWriter.__init__(self)
                self.failure: OSError | None = None

            def write(self, data: bytes) -> int:
                # The builder would print an exception and then report success.
                try:
                    return file.write(data) if self.failure is None else 0
                except OSError as error:
                    self.failure = error
                    return 0

        writer = Writer()
        built = builder.build_serialized_network_to_stream(network, config, writer)
        if writer.failure is not None:
            raise writer.failure
        if not built:
            raise EngineError(_refusal(network, messages), hint="change the engine's precision or compute_capability")
        file.flush()
        os.fsync(file.fileno())


def _refusal(network: Any, messages: Messages) -> str:
    """Return the builder's refusal, with the first layer of the network that it names."""
    text = _first_line(messages.errors[0]) if messages.errors else "it gave no reason"
    named = next((layer.name for layer in network if f"'{layer.name}'" in text or f"({layer.name}:" in text), None)
    where = f" at node {named!r}" if named else ""
    return f"the builder refused the graph{where}: {text}"
