"""Comparison of a graph's file with what the manifest says of its inputs and outputs."""

from collections.abc import Sequence

import onnxruntime as ort

from speccompile.contract import DTYPES, Dimension, Graph
from speccompile.errors import BundleError

_REBUILD = "build the bundle again with this speccompile"

_TYPES = {f"tensor({name.replace('float32', 'float')})": name for name in DTYPES}
"""ONNX Runtime's names of types -> those of the contract."""


def check_signature(session: ort.InferenceSession, graph: Graph, file: str) -> None:
    """Raise BundleError where the graph in `file` has other inputs or outputs than the manifest says."""
    for way, found, tensors in (
        ("input", session.get_inputs(), graph.inputs),
        ("output", session.get_outputs(), graph.outputs),
    ):
        own = {each.name: (_TYPES.get(each.type, each.type), each.shape) for each in found}
        told = {tensor.name: tensor for tensor in tensors}
        for name in sorted(told.keys() - own.keys()):
            raise BundleError(f"{file}: {way} {name!r}: the graph does not have it", hint=_REBUILD)
        for name, (dtype, shape) in sorted(own.items()):
            if name not in told:
                raise BundleError(f"{file}: {way} {name!r}: the manifest does not have it", hint=_REBUILD)
            if dtype != told[name].dtype or not _fit(shape, told[name].shape):
                sizes = ", ".join(str(size) if isinstance(size, int) else "?" for size in shape)
                said = f"{told[name].dtype} [{', '.join(map(str, told[name].shape))}]"
                raise BundleError(
                    f"{file}: {way} {name!r} is {dtype} [{sizes}], the manifest says {said}", hint=_REBUILD
                )


def _fit(shape: Sequence[int | str | None], told: Sequence[Dimension]) -> bool:
    """Return whether a graph takes what the manifest says: its numbers are equal, and its named sizes may be any."""
    return len(shape) == len(told) and all(
        not isinstance(own, int) or own == size for own, size in zip(shape, told, strict=True)
    )
