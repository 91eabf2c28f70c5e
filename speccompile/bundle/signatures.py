"""Signatures of the tensors of a round, as `speccompile.contract` describes them, and the fields of a manifest that
decide them. C++ reads these tables too: `scripts/contract_header.py` writes them."""

from speccompile.bundle.sampling import SETTINGS
from speccompile.contract import ADAPTER_PREFIX, COMPONENTS, SOURCE_ENCODERS

LARGEST = 2**31 - 1
MOST_TOKENS = LARGEST
"""Number of token ids that an int32 can tell apart."""

LIMITS = {
    "batch_size": (1, 1 << 16), "max_length": (1, LARGEST), "prefill_chunk": (1, LARGEST), "tokens": (0, 1 << 16),
    "depth": (0, 1 << 16), "catch_up": (0, 1 << 17), "vocabulary_size": (1, LARGEST),
}  # fmt: skip
"""Field -> its least and its greatest value. Below them no product of sizes overflows 64 bits."""

PLANNED = {
    "batch_size": ("batch_size",),
    "decoding": ("decoding",),
    "depth": ("drafter", "tree", "depth"),
    "eos_token_ids": ("target", "facts", "eos_token_ids"),
    "exact": ("verify", "exact"),
    "max_length": ("max_length",),
    "method": ("verify", "method"),
    "prefill_chunk": ("prefill_chunk",),
    "sample": ("drafter", "sample"),
    "tokens": ("drafter", "tokens"),
    "vocabulary_size": ("target", "facts", "vocabulary_size"),
}
"""Field -> its place in the plan."""

ROUNDS = (("verify",), ("verify", "draft"), ("verify", "step"))
"""Graphs of a round, in any order; the first without a drafter, or with host drafts."""

COMPUTED = {
    "batch": ("batch_size", 0),
    "drafts": ("tokens", 0),
    "nodes": ("tokens", 1),
    "vocabulary": ("vocabulary_size", 0),
}
"""Name of a size in SIGNATURES -> the field that it is, and an addend. Other names are those of the graphs; "*" is
any number."""

_COUNT = ("int64", ("batch",), "io")
_INDEX = ("int64", ("catch_up",), "index")
_ADJUSTED = ("batch", "logit_rows", "adjusted")
_UNIFORM = ("float32", ("batch", "drafts"), "io")

ADAPTER_MATRIX = f"{ADAPTER_PREFIX}*"
"""Name in SIGNATURES of all matrices of adapters."""

SIGNATURES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "window": ("int64", ("batch", "window"), "io"),
    "n_given": _COUNT,
    "n_total": _COUNT,
    "length": _COUNT,
    "logit_rows": ("int64", ("logit_rows",), "index"),
    "batch_rows": ("int64", ("batch",), "index"),
    "path": ("int64", ("batch", "window+1"), "io"),
    "n_path": _COUNT,
    "logits": ("float32", ("batch", "logit_rows", "vocabulary"), "optional"),
    "catch_up": _INDEX,
    "pairs": _INDEX,
    "parents": ("int64", ("batch", "nodes"), "io"),
    "nodes": ("int64", ("batch", "logit_rows"), "io"),
    **{name: (dtype, ("batch",), "io") for name, dtype in SETTINGS.items()},
    "history": ("int64", ("batch", "history"), "io"),
    "adjusted": ("int64", _ADJUSTED, "io"),
    "biases": ("float32", _ADJUSTED, "io"),
    "penalties": ("float32", _ADJUSTED, "io"),
    "uniforms": ("float32", ("batch", "logit_rows"), "io"),
    "accept_uniforms": _UNIFORM,
    "draft_uniforms": _UNIFORM,
    "draft_ids": ("int64", ("batch", "drafts", "*"), "io link"),
    "draft_probs": ("float32", ("batch", "drafts", "*"), "io link"),
    "allowed": ("bool", ("batch", "logit_rows", "allowed"), "io"),
    "adapter": _COUNT,
    "media": ("float32", ("media", "*"), "io"),
    "media_rows": ("int64", ("batch", "window"), "io"),
    "media_blocks": ("int64", ("batch", "window"), "io"),
    "media_offsets": ("int64", ("batch", "*", "window"), "io"),
    "media_next": ("int64", ("batch", "window"), "io"),
    "media_behind": _COUNT,
    ADAPTER_MATRIX: ("float32", ("*", "*", "*"), "io"),
    "source": ("int64", ("batch", "source"), "io"),
    "source_length": _COUNT,
    "source_tokens": ("int64", ("batch", "*"), "io"),
    "audio": ("float32", ("batch", "*", "*"), "io"),
    "encoded": ("float32", ("batch", "*", "*"), "link"),
    "timestamps": ("bool", ("batch",), "io"),
    "features": ("float32", ("batch", "window", "*"), "link"),
    "successors": ("int64", ("batch", "logit_rows", "*"), "link"),
    "row_tokens": ("int64", ("batch", "logit_rows"), "link"),
    "next_window": ("int64", ("batch", "nodes"), "io"),
    "next_total": _COUNT,
    "next_parents": ("int64", ("batch", "nodes"), "io"),
    "next_ids": ("int64", ("batch", "drafts", "*"), "io link"),
    "next_probs": ("float32", ("batch", "drafts", "*"), "io link"),
}
"""Tensor that is no state -> dtype, shape, role, or the roles that it may have."""

_READ = ("window", "n_given", "n_total", "length", "logit_rows")
_ACCEPTED = ("path", "n_path", "logits")
_DRAFTED = ("next_window", "next_total")

REQUIRED = {
    "verify": (_READ, _ACCEPTED),
    "draft": (("path", "n_path", "length"), _DRAFTED),
    "step": (_READ, (*_ACCEPTED, *_DRAFTED)),
    **dict.fromkeys(SOURCE_ENCODERS, ((), ())),  # their inputs and outputs `source_section` checks
}
"""Graph -> inputs and outputs that it always has."""

_SETTINGS = (*SETTINGS, "history")

COMPANIONS: dict[str, tuple[str, ...]] = {
    "uniforms": _SETTINGS,
    "draft_uniforms": _SETTINGS,
    "adjusted": ("uniforms", "biases", "penalties"),
    "biases": ("adjusted",),
    "penalties": ("adjusted",),
    "draft_ids": ("draft_probs",),
    "draft_probs": ("draft_ids",),
}
"""Input -> inputs that a graph with it has as well, because the host writes them together."""

TOKENS_STATE = "tokens"
"""State with all committed tokens."""

COMPONENT_STATES = tuple(f"{part}." for part in COMPONENTS)
"""Prefixes of a component's states. Other states are persistent, or `TOKENS_STATE`."""
