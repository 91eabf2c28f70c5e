"""Exact settings of the TensorRT builder, as the manifest records them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from speccompile.bundle.media import MEDIA
from speccompile.bundle.sampling import ADJUSTED, most_adjusted
from speccompile.bundle.sources import SOURCE, is_cross_state
from speccompile.contract import Graph, vocabulary_size
from speccompile.errors import EngineError

USUAL_SOURCE = 64
"""Tokens of a source for which engines that encode texts are tuned, if one can be so long."""

Shape = tuple[int, ...]
Profile = dict[str, tuple[Shape, Shape, Shape]]
"""Input name -> its smallest, usual and largest shape. Inputs of fixed shape are omitted."""


@dataclass(frozen=True)
class Settings:
    """Settings of one build.

    backend: "tensorrt_rtx" or "tensorrt". compute_capability: as in "8.9"; None is that of this machine's GPU.
    precision: component ("target", "drafter") -> precision; the graph has it already, this is for messages. tf32:
    whether products of float32 may be rounded to ten bits; they may not, or float32 would not mean it.
    decomposable_attention: without it float32 and unusual head sizes do not build.
    """

    backend: str
    compute_capability: str | None
    precision: dict[str, str]
    profile: Profile
    strongly_typed: bool = True
    tf32: bool = False
    decomposable_attention: bool = True
    profiling_verbosity: str = "DETAILED"

    def to_json(self) -> dict[str, Any]:
        profile = {name: [list(shape) for shape in shapes] for name, shapes in self.profile.items()}
        return asdict(self) | {"profile": profile}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Settings":
        """Return settings from their JSON. Raise EngineError naming the fields that are missing or unknown."""
        names = {field.name for field in fields(cls)}
        if data.keys() != names:
            odd = ", ".join(sorted(names ^ data.keys()))
            raise EngineError(
                f"the builder's settings have other fields than expected: {odd}",
                hint="build the bundle again with this speccompile",
            )
        return cls(**(dict(data) | {"profile": {name: _shapes(*rows) for name, rows in data["profile"].items()}}))

    def describe(self) -> str:
        """Return the settings for a message: capability and precision."""
        capability = f"compute capability {self.compute_capability or 'of the GPU at hand'}"
        words = [f"{part} {self.precision[part]}" for part in ("target", "drafter") if part in self.precision]
        return ", ".join([capability, *words])


def make_settings(
    graph: Graph,
    *,
    backend: str,
    compute_capability: str | None,
    precision: Mapping[str, str],
    tokens: int,
    catch_up: int,
    prefill_chunk: int,
    max_length: int,
) -> Settings:
    """Return the settings for a graph of the contract.

    tokens: drafts per round. catch_up: width of the drafter's catch-up when decoding. prefill_chunk: widest given
    window. max_length: maximum number of tokens of a sequence. Raise KeyError for a named width that the contract does
    not have.
    """
    widths = _widths(tokens, catch_up, prefill_chunk, max_length, vocabulary_size([graph]))
    slots = next((int(tensor.shape[0]) for tensor in graph.inputs if tensor.name == "length"), 1)
    rows = (1, 1, slots * (widths[2]["window"] + 1))  # with that of the token behind each chunk
    longest = next((int(tensor.shape[2]) for tensor in graph.outputs if is_cross_state(tensor.buffer)), 1)
    sources = (1, min(USUAL_SOURCE, longest), longest)
    widths = tuple(
        own | {MEDIA: count, SOURCE: source} for own, count, source in zip(widths, rows, sources, strict=True)
    )
    return Settings(backend, compute_capability, dict(precision), make_profile(graph, widths))


def make_profile(graph: Graph, widths: Iterable[dict[str, int]]) -> Profile:
    """Return the shapes of a graph's inputs at its smallest, usual and largest named widths. Raise KeyError for a named
    width that is missing."""
    sizes = tuple(widths)
    return {
        tensor.name: _shapes(*(tensor.concrete_shape(each) for each in sizes))
        for tensor in graph.inputs
        if not all(isinstance(size, int) for size in tensor.shape)
    }


def _widths(
    tokens: int, catch_up: int, prefill_chunk: int, max_length: int, vocabulary: int
) -> tuple[dict[str, int], ...]:
    """Return named widths at their smallest, in a decoding round (for which the engine is tuned), and at their
    largest."""
    widest = max(prefill_chunk, tokens + 1)
    narrow = {"history": 1, "allowed": 1, ADJUSTED: 1}
    wide = {"history": max_length, "allowed": vocabulary, ADJUSTED: most_adjusted(vocabulary, max_length, tokens)}
    return (
        {"window": 1, "logit_rows": 1, "catch_up": 2, **narrow},
        {"window": tokens + 1, "logit_rows": tokens + 1, "catch_up": max(catch_up, 2), **narrow},
        {"window": widest, "logit_rows": widest, "catch_up": widest + 1, **wide},
    )


def _shapes(smallest: Any, usual: Any, largest: Any) -> tuple[Shape, Shape, Shape]:
    return tuple(smallest), tuple(usual), tuple(largest)
