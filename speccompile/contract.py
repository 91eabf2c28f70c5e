"""The contract between the compiler and the runtime: graphs over named buffers.

A bundle is a set of named buffers and an ordered list of graphs over them. A graph's input reads the buffer of the
same name; a graph's output writes the buffer that its tensor names, which for a cache is the one it was read from (an
alias: updated in place). The runtime allocates a buffer once for every concrete shape it meets, binds the graphs to
them once, and then only runs graphs and reads counts and tokens.

Sizes that vary from run to run are names (window, logit_rows, catch_up, history, adjusted, "window+1" for one more).

B, the number of batch slots, is such a name too, batch, in a bundle with more than one slot: the first size of every
buffer with a line for each slot, states included. A run may cover a slice of the slots. It then reads and writes the
lines of these slots in place; links and optional outputs, which belong to one run, have one line for each slot of the
run. In a bundle with one slot, and for an engine without batch slices, B is a number: see `with_fixed_batch`.

One round, in the order of its graphs; a bundle without drafts has only the first one:

    verify: window, n_given, n_total, length, logit_rows, caches  ->  path, n_path, logits, caches'
    draft:  path, n_path, length, catch_up, caches                ->  window', n_total', caches'

or, with host drafts instead of a graph's, the host writes window', n_total' and parents' itself;

or fused into one, which drafts into buffers of its own that the host copies (autoregressive decoding runs verify):

    step:   window, n_given, n_total, length, logit_rows, catch_up, all caches
            ->  path, n_path, logits, next_window, next_total, all caches'

buffer          dtype, shape            meaning
window          int64 [B, window]       tokens that are not in the caches yet: first the certain ones, then the drafts
n_given         int64 [B]               number of certain tokens; 0 leaves the slot untouched (idle or finished)
n_total         int64 [B]               certain tokens and drafts together; the rest is padding
length          int64 [B]               committed tokens; written by the host
logit_rows      int64 [logit_rows]      0, 1, ..: logits are computed from window position n_given - 1 on
batch_rows      int64 [B]               0, 1, ..: which rows of the batch these are, for what reads all lines of a state
path            int64 [B, window + 1]   the accepted tokens in order, then the bonus token at index n_path
n_path          int64 [B]               accepted tokens, the given included
logits          float32 [B, logit_rows, V]  optional: bound only on request; of all tokens, whatever is
                                        allowed
catch_up        int64 [catch_up]        0, 1, ..: the drafter catches up over this many tokens, the bonus token last
pairs           int64 [catch_up]        the same, of a drafter whose rows pair what the target computed at a token with
                                        the token behind it; where a text is given in chunks, the host writes the
                                        next token into path[b, n_path[b]] between verify and draft; to a step, which
                                        has completed the row by a guess, it gives each chunk's last token once more
source          int64 [B, source]       the tokens of a source, read by an encoder's graph: see `bundle.sources`
source_length   int64 [B]               rows that count of each source's keys and values, at least one
source_tokens   int64 [B, E]            the same tokens, for lookups in the source
audio, encoded  float32 [B, M, F], [B, E, H]  features of a sound, in place of `source`; an encoder's states
timestamps      bool [B]                slots that write times: see `bundle.sources`
tokens          int64 [B, S]            all committed tokens and the bonus token (lookups); float32 [B, 1, S, 1]
                                        where an engine updates only caches in place
target.key.0 .. float [B, G, S, D]      caches, one pair a layer; `drafter.` for the drafter's own; float32, float16 or
                                        bfloat16, as the engine's precision says. A draft may read the target's, as
                                        the round's commit leaves them. In a ring (`Manifest`) S is less than a text
target.key_scale.0 .. float32 [B, G, S, 1]  of quantized caches, whose target.key.0 is int8: a row of a head is its
                                        codes times its scale; [B, G, S, 2] of int4 codes, [B, G, S, D / 2]
rows.target.key.0 .. [B, G, window, D]  new rows of a cache: see NEW_ROWS_PREFIX
drafter.ends    int64 [B, S]            of a drafter with another tokenizer: the number of its own tokens up to each of
                                        the target's. Its caches have E rows for every token, at least as many
target.conv.0 .. float32 [B, 1, K - 1, C]   of a convolution over K tokens: the last rows of its input; and
target.state.0 .. float32 [B, H, K, V]  of a recurrence: what a layer carries from token to token, whatever their
                                        number. Read before the window, written as it is after the accepted tokens;
                                        where length is 0 it counts as zeros, whatever it holds
next_..                                 drafts of a step: see NEXT_ROUND_INPUTS

With N drafts a round, the window of decoding is N + 1 wide. Its last given token is node 0 of a tree, the root, and the
drafts are nodes 1 to N: a chain, a tree that is constant in the graph, or one that the drafter makes (dynamic):

parents         int64 [B, N + 1]        dynamic trees: the node that each node follows, before it; -1 for the root
nodes           int64 [B, logit_rows]   trees: the node before each new token, 0 first: where its logits are

Sampling (`decoding: sampling`): the host gives every slot its settings and random numbers.

temperature     float32 [B]             0 is greedy
top_k           int64 [B]               0: all tokens
top_p, min_p    float32 [B]             1 and 0: all tokens
repetition_penalty  float32 [B]         1: none
history         int64 [B, history]      penalized tokens: those before this window, in any order, one of them repeated
adjusted        int64 [B, logit_rows, adjusted]  tokens whose logits the host changes, padded by repeating one
biases, penalties float32 [B, logit_rows, adjusted]  added to them before and behind the repetition penalty: logit bias;
                                        minus frequency and presence penalties, for which drafts count as written
uniforms        float32 [B, logit_rows] in [0, 1): chooses the new token 0, 1, .. of this round
accept_uniforms, draft_uniforms float32 [B, N]  one for each draft that is sampled: of its acceptance, of its drawing
draft_ids       int64 [B, N, C]         candidates among which the drafter drew the children of node 0 .. N - 1
draft_probs     float32 [B, N, C]       and their probabilities, which add up to one; zero where a node has no children

Constraints (`constraints: true`): the host says which tokens may follow. It knows the drafts before they are verified.

allowed         bool [B, logit_rows, allowed]  which tokens may stand behind each row of logits, some in every row: of V
                                        or, if no slot is constrained, of 1 that stands for all. What is chosen and
                                        accepted is what a target would choose that finds all others impossible

Adapters (`adapters: {rank, modules, slots}`): low-rank changes of the target's weights that are chosen as it runs. The
host writes them into slots 1, 2, ..; slot 0 is the target without an adapter, whatever its numbers are.

adapter         int64 [B]               the slot of each row's adapter
lora.<module>.a float32 [slots + 1, r, K]   of a module with weight W [N, K], whose result for x becomes W x + (x A^T) B
lora.<module>.b float32 [slots + 1, r, N]   B is transposed, and has the adapter's scale

Inputs of a drafter from the target, in addition to tokens:

features        float32 [B, window, F]  its taps at accepted tokens, in the order of the path
successors      int64 [B, logit_rows, K]  the target's K best tokens behind each row of logits, the best first
row_tokens      int64 [B, logit_rows]   the token at each of these rows, accepted or not; -1 where there is none
media           float32 [media, W]      of a target that sees pictures: see `speccompile.bundle.media`
media_rows, media_blocks, media_offsets, media_next, media_behind int64 [B, ..]  rows, pictures, positions
kept.table ..   any                     persistent states of a drafter, for all slots; no token depends on them

New tokens of a round in slot b: path[b, n_given[b] : n_path[b] + 1]. The host then adds n_path to length.

Standard library only. The tables below are C++'s too: `scripts/contract_header.py` writes contract_table.h from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

VERSION = 3
"""Version of the contract. A runtime refuses bundles with another one."""

BUFFERS = (
    "window", "n_given", "n_total", "length", "logit_rows", "batch_rows", "path", "n_path", "logits", "catch_up",
    "pairs", "tokens", "parents", "nodes", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "history",
    "adjusted", "biases", "penalties", "uniforms", "accept_uniforms", "draft_uniforms", "draft_ids", "draft_probs",
    "allowed", "features", "successors", "row_tokens", "adapter", "media", "media_rows", "media_blocks",
    "media_offsets", "media_next", "media_behind", "source", "source_length", "source_tokens", "audio", "encoded",
    "timestamps",
)  # fmt: skip
"""Names of buffers with a fixed name; states are named by their component and kind. Some are names of sizes as well."""

ENCODE_SOURCE, ENCODE_DRAFT_SOURCE = SOURCE_ENCODERS = ("encode_source", "encode_draft_source")
GRAPHS = ("verify", "draft", "step", *SOURCE_ENCODERS)
"""Names of a round's graphs, and of those that encode a source before the first round: see `sources`."""

ROLES = ("io", "index", "state", "optional", "link")
"""Roles of tensors: see `Tensor`."""

COMPONENTS = ("target", "drafter")
"""Components with weights and caches. The names of a component's caches begin with its name."""

NEXT_ROUND_INPUTS = {
    "next_window": "window", "next_total": "n_total", "next_parents": "parents", "next_ids": "draft_ids",
    "next_probs": "draft_probs",
}  # fmt: skip
"""Output of a draft -> buffer that the next round reads. `draft` writes there; `step`, which may write an output before
it has read all inputs, writes to a buffer of the output's own name, and the host copies it."""

PERSISTENT_PREFIX = "kept."
"""Name prefix of persistent states. They survive a generation and may be stale. Stale states lower acceptance and
change no token, so that a drafter never has to catch up on them."""

ADAPTER_PREFIX, ADAPTER_PARTS = "lora.", (".a", ".b")
"""Name prefix of the matrices of adapters, before the module's name, and the ends of its two matrices' names."""

RECURRENT_STATE_KINDS = ("conv", "state")
"""Kinds of states without a line for every token: they must not read a token twice."""

ENDS = "drafter.ends"
"""State of a drafter with another tokenizer: where the target's tokens end in its own."""

OUT_OF_PLACE_PREFIX = "next."
"""Prefix of buffers for states that an engine does not update in place. It copies them when the graph has run."""

NEW_ROWS_PREFIX = "rows."
"""Prefix of links with new rows of a cache, which the engine writes behind the committed ones after a run."""

BATCH = "batch"
"""Name of the size that counts the batch slots of a run."""

FLOAT_CACHE, INT8_CACHE, FP8_CACHE = CACHE_DTYPES = ("float", "int8", "fp8")
INT4_VALUES = "int8 keys and int4 values"
"""Dtypes of stored keys and values: floats; int8 codes, with a scale a row of a head; fp8 (E4M3); int4 values."""

CACHED_KINDS, SCALE_SUFFIX = ("key", "value"), "_scale"
"""Kinds of states with a row of numbers for every token and head, and the suffix of the kinds that hold their scales:
target.key.0 and target.key_scale.0."""

MAX_DRAFT_CANDIDATES = 64
"""C: drafters sample among the C most probable tokens. The cut costs a little acceptance and no exactness."""

Dimension = int | str


@dataclass(frozen=True)
class Dtype:
    """A data type: its bytes, its onnx.TensorProto.DataType, and its names in safetensors and TensorRT."""

    bytes: int
    onnx: int
    safetensors: str
    tensorrt: str


DTYPES = {
    "float32": Dtype(4, 1, "F32", "FLOAT"),
    "float16": Dtype(2, 10, "F16", "HALF"),
    "bfloat16": Dtype(2, 16, "BF16", "BF16"),
    "int64": Dtype(8, 7, "I64", "INT64"),
    "int32": Dtype(4, 6, "I32", "INT32"),
    "bool": Dtype(1, 9, "BOOL", "BOOL"),
    "int8": Dtype(1, 3, "I8", "INT8"),
    "float8e4m3fn": Dtype(1, 17, "F8_E4M3", "FP8"),
}
"""Properties of all dtypes, for both runtimes."""

BYTE_CACHES = _, FP8 = ("int8", "float8e4m3fn")
"""Dtypes of caches that TensorRT does not update in place."""

TENSORRT_DTYPES = {dtype.tensorrt: name for name, dtype in DTYPES.items()}
"""TensorRT's names of types -> those of this contract."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph. `buffer` is the buffer that it reads or writes.

    role: "io" (host or graph writes it, every run), "index" (0, 1, 2, ..), "state" (kept between runs, starts at zero),
    "optional" (an output that need not be bound), "link" (from one graph of a round to the next: no business of the
    host's).
    """

    name: str
    dtype: str
    shape: tuple[Dimension, ...]
    buffer: str
    role: str

    @property
    def is_batched(self) -> bool:
        """Return whether the tensor has a line for each batch slot of a run."""
        return self.shape[:1] == (BATCH,)

    def concrete_shape(self, widths: dict[str, int]) -> tuple[int, ...]:
        """Return the shape with every named width replaced. Raise KeyError for a missing width."""
        return tuple(size if isinstance(size, int) else _width(size, widths) for size in self.shape)


@dataclass(frozen=True)
class Graph:
    """One compiled graph: its name in the round, its inputs and outputs in the order of the file."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def aliases(self) -> dict[str, str]:
        """Output name -> input name, for every state that is updated in place."""
        read = {tensor.buffer: tensor.name for tensor in self.inputs}
        states = (t for t in self.outputs if t.role == "state" and not t.buffer.startswith(OUT_OF_PLACE_PREFIX))
        return {tensor.name: read[tensor.buffer] for tensor in states}

    @property
    def copy_after_run(self) -> dict[str, str]:
        """Buffer -> the buffer into which the engine copies it when the graph has run."""
        states = (tensor.buffer for tensor in self.outputs if tensor.role == "state")
        return {name: name.removeprefix(OUT_OF_PLACE_PREFIX) for name in states if name.startswith(OUT_OF_PLACE_PREFIX)}

    @property
    def write_after_run(self) -> dict[str, Tensor]:
        """Buffer of new rows -> the cache into which the engine writes them when the graph has run."""
        read = {tensor.buffer: tensor for tensor in self.inputs}
        names = (tensor.buffer for tensor in self.outputs if tensor.buffer.startswith(NEW_ROWS_PREFIX))
        return {name: read[name.removeprefix(NEW_ROWS_PREFIX)] for name in names}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"aliases": self.aliases}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Graph":
        """Parse the result of `to_json`. Raise KeyError or TypeError when a field is missing or unknown."""

        def tensors(rows: list[dict[str, Any]]) -> tuple[Tensor, ...]:
            return tuple(Tensor(**(row | {"shape": tuple(row["shape"])})) for row in rows)

        return cls(data["name"], tensors(data["inputs"]), tensors(data["outputs"]))


def is_own_cache(buffer: str) -> bool:
    """Return whether a buffer is a cache of the drafter's own layers: `drafter.key.0`, `drafter.1.value.0`."""
    return buffer.startswith(f"{COMPONENTS[1]}.") and bool({"key", "value"} & {*buffer.split(".")[1:3]})


def is_recurrent_state(buffer: str) -> bool:
    """Return whether a buffer is a recurrent state: `target.conv.0`, `drafter.1.state.3`."""
    return any(part in RECURRENT_STATE_KINDS for part in buffer.split("."))


def has_recurrent_states(graphs: Iterable[Graph], part: str) -> bool:
    """Return whether a component, of `COMPONENTS`, has recurrent states in these graphs of a round."""
    names = (tensor.buffer.removeprefix(OUT_OF_PLACE_PREFIX) for graph in graphs for tensor in graph.outputs)
    return any(name.startswith(f"{part}.") and is_recurrent_state(name) for name in names)


def is_scale(buffer: str) -> bool:
    """Return whether a buffer holds the scales of a quantized cache."""
    return any(part.endswith(SCALE_SUFFIX) for part in buffer.split("."))


def vocabulary_size(graphs: Iterable[Graph]) -> int:
    """Return the size of the vocabulary; 1 if no graph gives logits."""
    return next((int(t.shape[-1]) for graph in graphs for t in graph.outputs if t.name == "logits"), 1)


def supports_batch_slices(graphs: Iterable[Graph]) -> bool:
    """Return whether a run of these graphs may cover a slice of the batch slots."""
    return any(tensor.is_batched for graph in graphs for tensor in (*graph.inputs, *graph.outputs))


def with_fixed_batch(graph: Graph, rows: int) -> Graph:
    """Return the graph with a fixed batch size: every run covers all batch slots."""

    def fixed(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=tuple(rows if size == BATCH else size for size in tensor.shape))

    return Graph(graph.name, tuple(map(fixed, graph.inputs)), tuple(map(fixed, graph.outputs)))


def with_cache_dtypes(graph: Graph, dtypes: Mapping[str, str]) -> Graph:
    """Return the graph of an engine with other cache dtypes: `dtypes` by component, as in {"target": "float16"}."""

    def converted(tensor: Tensor) -> Tensor:
        part = tensor.buffer.partition(".")[0]
        is_kept = is_recurrent_state(tensor.buffer) or is_scale(tensor.buffer)
        is_cache = tensor.role == "state" and tensor.dtype == "float32" and not is_kept
        return replace(tensor, dtype=dtypes[part]) if is_cache and part in dtypes else tensor

    return Graph(graph.name, tuple(map(converted, graph.inputs)), tuple(map(converted, graph.outputs)))


def with_tensorrt_states(graph: Graph) -> Graph:
    """Return the graph of an engine that updates only caches of floats in place: tokens are float32 [B, 1, S, 1];
    persistent and recurrent states are written to separate buffers; of other caches the graph gives new rows."""
    written = {tensor.name for tensor in graph.outputs}

    def converted(tensor: Tensor) -> Tensor:
        if tensor.buffer.startswith(PERSISTENT_PREFIX) or is_recurrent_state(tensor.buffer):
            return replace(tensor, buffer=f"{OUT_OF_PLACE_PREFIX}{tensor.buffer}") if tensor.name in written else tensor
        if tensor.role == "state" and tensor.dtype in BYTE_CACHES and tensor.name in written:
            shape = (*tensor.shape[:2], "window", tensor.shape[3])
            return replace(tensor, shape=shape, buffer=f"{NEW_ROWS_PREFIX}{tensor.buffer}", role="link")
        if tensor.role != "state" or tensor.dtype != "int64":
            return tensor
        batch, size = tensor.shape
        return replace(tensor, dtype="float32", shape=(batch, 1, size, 1))

    return Graph(graph.name, tuple(map(converted, graph.inputs)), tuple(map(converted, graph.outputs)))


def _width(text: str, widths: dict[str, int]) -> int:
    name, _, more = text.partition("+")
    return {"media": 1, "adjusted": 1, **widths}[name] + int(more or 0)  # 1: a run without pictures, or biases
