"""Dialect of PaSS's embeddings. The authors published no weights, so it is the plainest layout: one tensor."""

from speccompile.drafters.dialects import Dialect

PASS = "PaSS"  # noqa: S105 (no password)
EMBEDDINGS = "mask_embeddings"
"""float [L, H]: input embeddings for the L tokens after the next one."""

DIALECTS = (
    Dialect(PASS, tensors=(EMBEDDINGS,), without=("*layers*", "*fc*", "*head*"), names={EMBEDDINGS: EMBEDDINGS}),
)
