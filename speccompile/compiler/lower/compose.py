"""The fused step: verification and drafting in one graph, composed of their two neutral graphs."""

import onnx_ir as ir

from speccompile.contract import BATCH, Graph, Tensor

STEP = "step"
_PASSED_ON = ("path", "n_path", "features", "successors", "row_tokens")


def step_graph(verify: Graph, draft: Graph) -> Graph:
    """Return the contract of the `step` graph: the inputs and the outputs of both graphs.

    Its drafts go to separate buffers, `next_window` and `next_total`, which the host copies into the next round's
    window: a graph may write an output before it has read all inputs.
    """
    known = {tensor.name for tensor in verify.inputs} | set(_PASSED_ON)
    inputs = [*verify.inputs, *(tensor for tensor in draft.inputs if tensor.name not in known)]
    drafts = [Tensor(t.name, t.dtype, t.shape, t.name, t.role) for t in draft.outputs if t.role != "state"]
    updated = [[t for t in graph.outputs if t.role == "state"] for graph in (verify, draft)]
    results = [tensor for tensor in verify.outputs if tensor.role not in ("state", "link")]
    ordered = sorted(inputs, key=lambda tensor: tensor.role == "state")
    return Graph(STEP, tuple(ordered), (*results, *drafts, *updated[0], *updated[1]))


def compose_step(verify: ir.Model, draft: ir.Model, graph: Graph) -> ir.Model:
    """Return the `step` graph of both models, which are consumed. `graph`: its contract, from `step_graph`.

    The draft part reads the path, its length and the other links from the verification, and shares the inputs and the
    weights that both have.
    """
    made = {value.name: value for value in (*verify.graph.inputs, *verify.graph.outputs)}
    for value in list(draft.graph.inputs):
        # The draft reads a cache of the target as the commit leaves it.
        known = made.get(f"{value.name}.out", made.get(value.name))
        if known is not None:
            ir.convenience.replace_all_uses_with(value, known)
        else:
            made[value.name] = value
    made |= {value.name: value for value in draft.graph.outputs}
    _prefix(draft, {value.name for value in made.values()})
    draft.graph.inputs.clear()
    draft.graph.outputs.clear()
    weights, nodes = list(draft.graph.initializers.values()), list(draft.graph)
    same_place = {place: weight for weight in verify.graph.initializers.values() if (place := _place(weight))}
    for weight in weights:
        del draft.graph.initializers[weight.name]
        place = _place(weight)
        if place is not None and (same := same_place.get(place)) is not None:
            ir.convenience.replace_all_uses_with(weight, same)
        else:
            verify.graph.register_initializer(weight)
    draft.graph.remove(nodes)
    verify.graph.extend(nodes)
    verify.graph.inputs[:] = [made[tensor.name] for tensor in graph.inputs]
    verify.graph.outputs[:] = [made[tensor.name] for tensor in graph.outputs]
    verify.opset_imports.update(draft.opset_imports)
    verify.functions.update(draft.functions)
    verify.graph.name = graph.name
    return verify


def _place(weight: ir.Value) -> tuple[str, int, str] | None:
    """Return file, offset and dtype of a weight; None for one inside the graph."""
    tensor = weight.const_value
    if not isinstance(tensor, ir.ExternalTensor):
        return None
    return str(tensor.location), tensor.offset or 0, str(tensor.dtype)


def _prefix(model: ir.Model, kept: set[str | None]) -> None:
    """Rename everything but inputs and outputs, and symbolic sizes as well, to names that the other graph cannot
    have."""
    for node in model.graph:
        node.name = f"draft/{node.name}"
    made = [value for node in model.graph for value in node.outputs]
    for value in [*model.graph.initializers.values(), *made]:
        if value.name not in kept:  # an output may be a constant
            value.name = f"draft/{value.name}"
            if value.shape is not None:
                value.shape = ir.Shape(map(_renamed, value.shape))


def _renamed(size: int | ir.SymbolicDim) -> int | str | None:
    if isinstance(size, int):
        return size
    if size.value == BATCH:  # both graphs have this size
        return BATCH
    return None if size.value is None else f"draft/{size.value}"
