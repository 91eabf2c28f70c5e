"""Sources in the contract: the texts that a target with an encoder reads before it writes.

A request has one source, a text of up to E tokens, E being the bundle's longest source. Once, before the request's
first round, a graph encodes it, and writes the keys and values of every cross-attention to buffers of the slot, which
the round reads and leaves as they are:

    encode_source:  source  ->  target.cross_key.0, target.cross_value.0, ..

buffer                          dtype, shape            meaning
source                          int64 [B, source]       the tokens of a source, all of them
target.cross_key.0, ..          float [B, G, E, D]      written by the encoder from the first row on; as the component's
                                                        caches are stored, with scales `target.cross_key_scale.0`
source_length                   int64 [B]               rows of these that count, at least one; written by the host at
                                                        admission, and read by verify, draft and step
source_tokens                   int64 [B, E]            the same tokens, for lookups; written by the host at admission
audio                           float32 [B, M, F]       log-mel features of a sound in place of `source`, for a target
                                                        that hears: M mel bands, F frames, two for each of E rows, all
                                                        of which count
encoded                         float32 [B, E, H]       states of an encoder that hears, for a drafter with the same
timestamps                      bool [B]                slots that write times, of a target that hears: a time
                                                        follows where all times together are more probable than every
                                                        other token that is allowed

A drafter with an encoder has a second such graph, `encode_draft_source`, for `drafter.cross_key.0`, .. Where its
encoder is the target's, the second graph has none: it reads the states, `encoded`, that the first one writes as well.

Standard library only: this file is imported by the compiler and by the runtime.
"""

from collections.abc import Iterable

from speccompile.contract import COMPONENTS, SCALE_SUFFIX, SOURCE_ENCODERS, Graph, Tensor

CROSS_KINDS = ("cross_key", "cross_value")
"""Kinds of states with rows of a source."""

ENCODED_COMPONENTS = dict(zip(SOURCE_ENCODERS, COMPONENTS, strict=True))
"""Encoder's graph -> the component whose source it encodes."""

SOURCE, SOURCE_LENGTH, SOURCE_TOKENS, AUDIO, ENCODED = "source", "source_length", "source_tokens", "audio", "encoded"
TIMESTAMPS = "timestamps"
"""Names of buffers; the first is a width as well."""

FRAMES_PER_ROW = 2
"""Frames of features that become one row of an encoder that hears."""


def is_cross_state(buffer: str) -> bool:
    """Return whether a buffer holds rows of a source, or their scales: `target.cross_key.0`."""
    return any(part.removesuffix(SCALE_SUFFIX) in CROSS_KINDS for part in buffer.split("."))


def is_encoder(graph: Graph) -> bool:
    """Return whether a graph encodes a source, and is no part of a round."""
    return graph.name in SOURCE_ENCODERS


def shares_encoder(graph: Graph) -> bool:
    """Return whether a graph reads states that another graph's encoder writes."""
    return any(tensor.name == ENCODED for tensor in graph.inputs)


def round_only(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
    """Return the graphs of a round, without those that encode a source before it."""
    return tuple(graph for graph in graphs if not is_encoder(graph))


def length_input(batch: int | str) -> Tensor:
    """Return the input of a graph that reads rows of a source."""
    return Tensor(SOURCE_LENGTH, "int64", (batch,), SOURCE_LENGTH, "io")


def tokens_input(batch: int | str, rows: int) -> Tensor:
    """Return the input of a drafter that looks up in the source."""
    return Tensor(SOURCE_TOKENS, "int64", (batch, rows), SOURCE_TOKENS, "io")
