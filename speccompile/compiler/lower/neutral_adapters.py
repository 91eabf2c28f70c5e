"""The neutral op of adapters in ONNX: `speccompile::LowRank`, see `step/ops.py`."""

LOW_RANK = """
    own_a = Gather <axis = 0> (a, adapter)
    own_b = Gather <axis = 0> (b, adapter)
    turned = Transpose <perm = [0, 2, 1]> (own_a)
    shares = MatMul (x, turned)
    change_f = MatMul (shares, own_b)
    change = CastLike (change_f, y)
    changed = Add (y, change)
    to_rows = Constant <value_ints = [-1, 1, 1]> ()
    slots = Reshape (adapter, to_rows)
    none = Constant <value_int = 0> ()
    is_adapted = Greater (slots, none)
    z = Where (is_adapted, changed, y)
"""
"""Body of LowRank, for float32."""

TEXT = f"""
<domain: "speccompile", opset_import: ["" : 24]>
LowRank (y, x, a, b, adapter) => (z)
{{
    {LOW_RANK}
}}
"""
