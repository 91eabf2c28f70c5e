"""The operators of `speccompile/native` in ONNX graphs.

A node calls an operator of the domain `speccompile.native`. With the library, ONNX Runtime runs its kernel; without it,
the node's ONNX function, whose body defines the kernel's result in operators of ONNX and ONNX Runtime. So the same file
runs with and without the library, as exactly, though slower without it and not to the same bits.

functions  the bodies
layouts    weights in the layout of the kernels
"""

from speccompile.native import DOMAIN

__all__ = ["CHAIN", "DOMAIN", "INTEGERS", "ONNXRUNTIME_DOMAIN", "VERSION"]

ONNXRUNTIME_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators, which the bodies call."""

VERSION = 1
"""Version of the operators, as graphs import them."""

CHAIN = "Chain"
"""The operator whose steps are other ones. Its functions are overloads, one for each sequence of steps."""

INTEGERS = "Integers"
"""The operator whose steps are operators of ONNX on integers, with overloads as those of a chain."""
