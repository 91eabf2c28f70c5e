"""Resource estimate: disk and memory of a build, from the headers of checkpoints, before any work.

Weights are streamed, so private memory does not grow with the model: a build holds the libraries, the largest weight,
the KV caches of the proof and the logits of a window. In addition it maps files, whose pages the system can evict.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, NamedTuple, Self

from speccompile.compiler.checkpoints.facts import TOKENIZER
from speccompile.compiler.checkpoints.gguf.block_types import EXPERTS, QUANTIZED
from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import TEXT, decoder_tensors
from speccompile.compiler.checkpoints.quantization import read_quantization
from speccompile.compiler.checkpoints.weights import StoredTensor, stored_tensors
from speccompile.drafters import KINDS_SHARING_TARGET_WEIGHTS
from speccompile.errors import BundleError, CheckpointError
from speccompile.index.files import read_header
from speccompile.machine.system import available_cores
from speccompile.plan.head import TensorSource
from speccompile.plan.plan import EnginePlan, ModelPlan, Plan
from speccompile.recipe.cache_sizes import cache_bytes, cache_size
from speccompile.recipe.sizes import HEAD, LAYER, NATIVE, OTHER, TABLE, Weight, find_weights, layout_of, stored_bytes
from speccompile.runtime.text.tokenizer import Tokenizer

TENSORRT = ("tensorrt_rtx", "tensorrt")
"""Backends that store the weights of every graph in a separate file."""

GRAPH_BYTES = 150_000
"""Bytes of a graph without its weights: 55 to 213 thousand for the demo's models of five and two layers."""

TENSORRT_KERNEL_BYTES = 7_000_000
"""Bytes of the compiled kernels in a TensorRT engine: 3.6 million in the demo's verify, 9.8 in its draft."""

LIBRARIES, RESERVED, THREAD = 500_000_000, 1_200_000_000, 72 << 20
"""Bytes that Python, torch, transformers and ONNX Runtime hold while they trace; bytes that they map and reserve in
addition (the demo with its proof: 0.57 GB held, 2.1 GB of address space); and bytes that each of their threads
reserves: a stack of 8 MiB and an arena of the C library of 64 MiB."""

CHUNK_ELEMENTS, CHUNK_COPIES = 1 << 22, 4
"""Number of elements of a weight that are read at once, and of copies of them: stored, float32, and intermediate copies
of the quantization."""

CACHE_COPIES = 2
"""Number of copies of the KV caches and the logits in the proof: an engine's inputs and its outputs. The estimate for a
random Llama of 8 B in int4 with its proof is 3.9 GB; 3.5 GB were measured."""


@dataclass(frozen=True)
class ResourceEstimate:
    """Resources of a build, in bytes. bundle: its files. temporary: additional files until the build ends. memory: peak
    private memory of a process. mapped: files that it maps at once. reserved: address space for libraries and threads.

    TensorRT's builder is not counted: it is a separate process with a separate limit.
    """

    bundle: int
    temporary: int
    memory: int
    mapped: int
    reserved: int

    @property
    def disk(self) -> int:
        return self.bundle + self.temporary

    @property
    def address_space(self) -> int:
        return self.memory + self.mapped + self.reserved

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"disk": self.disk, "address_space": self.address_space}


def estimate_resources(plan: Plan) -> ResourceEstimate:
    """Estimate the whole build, its proof included. Raise CheckpointError as `read_checkpoint` does."""
    models = PlanWeights.of(plan)
    built = [engine for engine in plan.engines if engine.backend in TENSORRT and not engine.defer]
    opened = [engine for engine in plan.engines if engine not in built]
    kept = _all_files(plan, models, opened)
    graphs = 2 * GRAPH_BYTES * len({(engine.backend, engine.provider, engine.precision) for engine in opened})
    engines = sum(_plan_bytes(plan, models, engine) + 2 * TENSORRT_KERNEL_BYTES for engine in built)
    sources = {file: size for file, size in _all_files(plan, models, built).items() if file not in kept}
    return ResourceEstimate(
        bundle=round(_tokenizer_bytes(plan) + _index_bytes(plan) + graphs + sum(kept.values()) + engines)
        + prefix_bytes(plan),
        temporary=round(sum(sources.values()) + _left_out_bytes(plan, models)) + 4 * models.in_blocks,
        memory=LIBRARIES
        + _weight_bytes(models.largest)
        + CACHE_COPIES * (cache_bytes(plan) + _score_bytes(plan))
        + adapter_bytes(plan),
        mapped=round(max(plan.target.facts.weight_bytes, *(_plan_bytes(plan, models, each) for each in plan.engines))),
        reserved=RESERVED + 2 * available_cores() * THREAD,  # threads of torch and of ONNX Runtime
    )


def running_bytes(plan: Plan) -> int:
    """Estimate the memory in which a bundle runs: its files, which are mapped, the KV caches, the logits and the slots
    of adapters."""
    return estimate_resources(plan).bundle + cache_bytes(plan) + _score_bytes(plan) + adapter_bytes(plan)


def _weight_bytes(largest: int) -> int:
    """Return the peak bytes for one weight: the largest weight in float32, which ONNX Runtime reads whole in the traced
    graph, or the copies of a chunk in quantization, whichever is more."""
    return max(4 * largest, CHUNK_COPIES * 4 * min(CHUNK_ELEMENTS, largest))


def largest_graph_bytes(plan: Plan, engine: EnginePlan) -> float:
    """Return the weight bytes of an engine's largest graph: of `step` if fused, else of the larger of `verify` and
    `draft`."""
    parts = [size for _, size in _files(plan, PlanWeights.of(plan), engine)]
    return sum(parts) if plan.graphs == "fused" else max(parts)


class ModelWeights(NamedTuple):
    """The weights of a model, whether its head is tied to its embedding, and how many numbers lie in GGUF's blocks: a
    traced graph has a copy of these in float32."""

    weights: list[Weight]
    tied: bool
    in_blocks: int = 0

    def bytes_in(self, engine: EnginePlan, word: str) -> float:
        return stored_bytes(self.weights, layout_of(engine), word, engine.precision.block_size or 0, tied=self.tied)


class PlanWeights(NamedTuple):
    """Models of a plan. drafters: those with separate weights; borrowed: the target's weights that a drafter reads."""

    target: ModelWeights
    drafters: list[ModelWeights]
    borrowed: ModelWeights

    @property
    def largest(self) -> int:
        """Number of elements of the largest weight."""
        return max(weight.size for model in (self.target, *self.drafters) for weight in model.weights)

    @property
    def in_blocks(self) -> int:
        return sum(model.in_blocks for model in (self.target, *self.drafters))

    @classmethod
    def of(cls, plan: Plan) -> Self:
        target, drafter = _read(plan.target), plan.drafter
        drafters = [_read(model) for model in drafter.models]
        roles: set[str] = set()
        if head := drafter.head:
            tensors = ((each.name, each.dtype, each.shape) for each in head.tensors.values())
            weights = find_weights(tensors, plan.target.facts.vocabulary_size)
            drafters.append(ModelWeights(weights, tied=False, in_blocks=_in_blocks(head.tensors.values())))
            roles = {TABLE, HEAD} - {weight.role for weight in drafters[0].weights}
        if drafter.kind in KINDS_SHARING_TARGET_WEIGHTS:
            roles = {TABLE, HEAD, LAYER, OTHER}
        share = drafter.layers.halves / (2 * (plan.target.facts.layers or 1)) if drafter.layers else 1.0
        borrowed = [
            replace(weight, columns=round(weight.columns * share)) if weight.role in (LAYER, OTHER) else weight
            for weight in target.weights
            if weight.role in roles
        ]
        return cls(target, drafters, ModelWeights(borrowed, target.tied))


def _read(model: ModelPlan) -> ModelWeights:
    config, stored = read_json_object(model.folder / CONFIG) or {}, _stored(model)
    tensors = ((name, each.dtype, each.shape) for name, each in stored.items())
    weights = find_weights(tensors, model.facts.vocabulary_size, read_quantization(model.folder))
    has_head = any(weight.role == HEAD for weight in weights)
    tied = bool(config.get("tie_word_embeddings", False)) or not has_head
    return ModelWeights(weights, tied, _in_blocks(stored.values()))


def _in_blocks(tensors: Iterable[StoredTensor | TensorSource]) -> int:
    """Return how many numbers lie in blocks of GGUF files."""
    return sum(prod(each.shape) for each in tensors if each.dtype in QUANTIZED)


def _stored(model: ModelPlan) -> Mapping[str, StoredTensor]:
    """Return the tensors of a checkpoint by name, without those of other parts than the decoder."""
    stored = stored_tensors(model.folder)
    return decoder_tensors(stored, model.folder) if TEXT in (read_json_object(model.folder / CONFIG) or {}) else stored


_File = tuple[str, str, str, int | None]
"""Key of a weight file: layout, part, precision and block size."""


def _all_files(plan: Plan, models: PlanWeights, engines: Iterable[EnginePlan]) -> dict[_File, float]:
    return {file: size for engine in engines for file, size in _files(plan, models, engine)}


def _files(plan: Plan, models: PlanWeights, engine: EnginePlan) -> Iterator[tuple[_File, float]]:
    """Yield the weight files of an engine's graphs, and their bytes."""
    layout, words = layout_of(engine), engine.precision.words()
    for part, word in words.items():
        own = [models.target] if part == "target" else models.drafters
        size = sum(model.bytes_in(engine, word) for model in own)
        if part == "drafter" and own and layout != NATIVE and word != words["target"]:
            size += models.borrowed.bytes_in(engine, word)  # this layout shares only equal values
        yield (layout, part, word, engine.precision.block_size_of(word)), size


def _plan_bytes(plan: Plan, models: PlanWeights, engine: EnginePlan) -> float:
    """Return the weight bytes of all graphs of an engine, each with a separate copy."""
    files = dict(_files(plan, models, engine))
    target = models.target.bytes_in(engine, engine.precision.target)
    if plan.graphs == "fused":
        return sum(files.values()) + target
    return sum(files.values()) + models.borrowed.bytes_in(engine, engine.precision.target)


def _left_out_bytes(plan: Plan, models: PlanWeights) -> float:
    """Return the bytes of the target's weights in a drafter's graphs: written during the build, and then removed."""
    return max(models.borrowed.bytes_in(engine, engine.precision.target) for engine in plan.engines)


def _tokenizer_bytes(plan: Plan) -> int:
    return (plan.target.folder / TOKENIZER).stat().st_size if plan.target.facts.tokenizer else 0


def _index_bytes(plan: Plan) -> int:
    """Return the bytes of the retrieval index, which is copied if it lies on another filesystem."""
    retrieval = plan.drafter.retrieval
    if retrieval is None or retrieval.folder is None:
        return 0
    return sum(int(record["bytes"]) for record in read_header(retrieval.folder).files.values())


def adapter_bytes(plan: Plan) -> int:
    """Return the bytes of the slots of adapters: float32 matrices [slots + 1, rank, inputs] and [.., outputs] of every
    linear layer that they may change; slot 0 is the base."""
    slots = plan.adapters
    if slots is None:
        return 0
    widths = sum(
        sum(tensor.shape)
        for name, tensor in _stored(plan.target).items()
        if len(tensor.shape) == 2 and EXPERTS not in name and slots.change(name.rpartition(".")[0])
    )
    return 4 * (slots.slots + 1) * slots.rank * widths


def prefix_bytes(plan: Plan) -> int:
    """Return the bytes of the prefixes that the bundle ships: the cache rows of their tokens, for every engine
    on the processor. Raise CheckpointError for a file that is no tokenizer."""
    if not plan.prefixes:
        return 0
    file = plan.target.folder / TOKENIZER
    try:
        tokenizer = Tokenizer(file)
    except BundleError as error:
        raise CheckpointError(str(error), hint="save the tokenizer beside the model again") from error
    size = cache_size(plan)
    rows = sum(size.held(len(tokenizer.encode(prefix.text))) for prefix in plan.prefixes)
    return rows * sum(engine.provider == "cpu" for engine in plan.engines)


def _score_bytes(plan: Plan) -> int:
    """Return the bytes of the logits of the widest window, in float32."""
    width = max(plan.prefill_chunk, plan.drafter.tokens + 1)
    return 4 * plan.batch_size * width * plan.target.facts.vocabulary_size
