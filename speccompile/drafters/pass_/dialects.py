"""How PaSS's embeddings are written. The authors published no weights, so this is the plain form: one tensor."""

from speccompile.drafters.dialects import Dialect

PASS = "PaSS"  # noqa: S105 (no password)
EMBEDDINGS = "mask_embeddings"
"""float [L, H]: in the place of what the target's embedding gives for the L tokens behind the next one."""

DIALECTS = (
    Dialect(PASS, tensors=(EMBEDDINGS,), without=("*layers*", "*fc*", "*head*"), names={EMBEDDINGS: EMBEDDINGS}),
)
