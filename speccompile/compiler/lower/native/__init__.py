"""The operators of `speccompile/native`, as graphs know them.

A node calls an operator of the domain `speccompile.native`. Where the library is, ONNX Runtime runs its kernel;
elsewhere it runs the node's ONNX function, whose body says in operators of ONNX and ONNX Runtime what the kernel
computes. So the same file runs with and without the library, as exactly, though not as fast and not to the same bits.

functions  the bodies
layouts    weights as the kernels read them
"""

from speccompile.native import DOMAIN

__all__ = ["DOMAIN", "VERSION"]

VERSION = 1
"""Of the operators, as graphs import them."""
