"""The graphs of toy bundles in the contract's terms. Their caches hold tokens, int64 [batch, rows]."""

from collections.abc import Iterator

from speccompile.bundle.sampling import SETTINGS
from speccompile.contract import NEXT_ROUND_INPUTS, Graph, Tensor
from tests.light.toy_models import CANDIDATES, VOCABULARY


def toy_graphs(
    batch: int,
    rows: int,
    tokens: int,
    *,
    fused: bool = False,
    tree: str = "chain",
    sampling: bool = False,
    sample: bool = False,
    features: bool = False,
    pairs: bool = False,
    carried: bool = False,
) -> tuple[Graph, ...]:
    """Return the round's graphs. features: the drafter reads something of the target that is the host's no business;
    pairs: and keeps it beside the next token; carried: the target carries a state from token to token."""
    make = _Tensors(batch, rows, tokens)
    settings = [*make.settings()] if sampling else []
    taps = [make.io("features", "window", 1, dtype="float32", role="link")] if features else []
    kept = "io" if fused else "link"
    read = [make.io(name) for name in ("n_given", "n_total", "length")]
    read += [make.index("logit_rows"), *([make.io("parents", tokens + 1)] if tree == "dynamic" else [])]
    read += [*settings, *(make.per_row() if sampling else [])]
    if sample:
        read += [make.io("accept_uniforms", tokens, dtype="float32"), *make.drawn("draft_", kept)]
    found = [make.io("path", "window+1"), make.io("n_path")]
    found += [make.io("nodes", "logit_rows")] if tree != "chain" else []
    found += [Tensor("logits", "float32", (batch, "logit_rows", VOCABULARY), "logits", "optional"), *taps]
    verify = Graph(
        "verify",
        (make.io("window", "window"), *read, make.cache("target"), *([make.carried()] if carried else [])),
        (*found, make.cache("target", ".out"), *([make.carried(".out")] if carried else [])),
    )
    read = [*found[:2], make.io("length"), make.index("pairs" if pairs else "catch_up"), *taps]
    if sample:
        read += [*settings, make.io("draft_uniforms", tokens, dtype="float32")]
    drafted = [make.io("next_window", tokens + 1), make.io("next_total")]
    drafted += [make.io("next_parents", tokens + 1)] if tree == "dynamic" else []
    drafted += make.drawn("next_", kept) if sample else []
    if not fused:
        drafted = [Tensor(t.name, t.dtype, t.shape, NEXT_ROUND_INPUTS[t.name], t.role) for t in drafted]
    caches = ["drafter", *(["drafter.next"] if pairs else [])]
    read, drafted = [*read, *map(make.cache, caches)], [*drafted, *(make.cache(each, ".out") for each in caches)]
    draft = Graph("draft", tuple(read), tuple(drafted))
    return (_step(verify, draft), verify) if fused else (verify, draft)


class _Tensors:
    """What tensors of the toy look like."""

    def __init__(self, batch: int, rows: int, tokens: int) -> None:
        self.batch, self.rows, self.tokens = batch, rows, tokens

    def io(self, name: str, *shape: int | str, dtype: str = "int64", role: str = "io") -> Tensor:
        return Tensor(name, dtype, (self.batch, *shape), name, role)

    def index(self, name: str) -> Tensor:
        return Tensor(name, "int64", ("catch_up" if name == "pairs" else name,), name, "index")

    def cache(self, part: str, suffix: str = "") -> Tensor:
        return Tensor(f"{part}.rows{suffix}", "int64", (self.batch, self.rows), f"{part}.rows", "state")

    def carried(self, suffix: str = "") -> Tensor:
        return Tensor(f"target.state.0{suffix}", "float32", (self.batch, 1, 1, 1), "target.state.0", "state")

    def settings(self) -> Iterator[Tensor]:
        for name in SETTINGS:
            yield self.io(name, dtype="int64" if name == "top_k" else "float32")
        yield self.io("history", "history")

    def per_row(self) -> Iterator[Tensor]:
        yield self.io("uniforms", "logit_rows", dtype="float32")
        for name, dtype in zip(("adjusted", "biases", "penalties"), ("int64", "float32", "float32"), strict=True):
            yield self.io(name, "logit_rows", "adjusted", dtype=dtype)

    def drawn(self, prefix: str, role: str) -> list[Tensor]:
        shape = (self.tokens, CANDIDATES)
        return [
            self.io(f"{prefix}ids", *shape, role=role),
            self.io(f"{prefix}probs", *shape, dtype="float32", role=role),
        ]


def _step(verify: Graph, draft: Graph) -> Graph:
    known = {tensor.name for tensor in (*verify.inputs, *verify.outputs)}
    inputs = [*verify.inputs, *(tensor for tensor in draft.inputs if tensor.name not in known)]
    return Graph("step", tuple(inputs), (*verify.outputs, *draft.outputs))
