"""The neutral ops on logits in ONNX: `speccompile::Adjust` and `Allow`, see `step/logit_ops.py` and `step/ops.py`."""

ADJUST = """
<domain: "speccompile", opset_import: ["" : 24]>
Adjust (logits, tokens, values) => (adjusted)
{
    before = GatherElements <axis = 2> (logits, tokens)
    after = Add (before, values)
    adjusted = ScatterElements <axis = 2> (logits, tokens, after)
}
"""

# Logits that are not allowed: step/ops.py, HIDDEN.
ALLOW = """
<domain: "speccompile", opset_import: ["" : 24]>
Allow (logits, allowed) => (possible)
{
    hidden = Constant <value_float = -1e30> ()
    possible = Where (allowed, logits, hidden)
}
"""

TEXTS = (ADJUST, ALLOW)

SIGNATURES: dict[str, tuple[str, str, dict[str, str]]] = {"Adjust": ("F I F", "F", {}), "Allow": ("F B", "F", {})}
"""Operator -> its signature: see `neutral._SIGNATURES`."""
