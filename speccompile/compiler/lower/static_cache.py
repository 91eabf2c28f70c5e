"""Lowering of neutral ONNX for TensorRT and CUDA: all passes in order, with their reasons."""

import onnx_ir as ir

from speccompile.compiler.lower.pass_list import TIDY, Pass, run_passes
from speccompile.compiler.lower.passes.adjust_scattered import adjust_scattered
from speccompile.compiler.lower.passes.allow_expanded import allow_expanded
from speccompile.compiler.lower.passes.attend_masked import attend_masked
from speccompile.compiler.lower.passes.cast_like import cast_like
from speccompile.compiler.lower.passes.commit_integers import commit_integers
from speccompile.compiler.lower.passes.commit_persistent import commit_persistent
from speccompile.compiler.lower.passes.commit_scatter import commit_scatter
from speccompile.compiler.lower.passes.convolve_slices import convolve_slices
from speccompile.compiler.lower.passes.draw_blocks import draw_blocks
from speccompile.compiler.lower.passes.fold_constants import fold_constants
from speccompile.compiler.lower.passes.inline_states import inline_states
from speccompile.compiler.lower.passes.nucleus_bisected import nucleus_bisected
from speccompile.compiler.lower.passes.remove_noop_slices import remove_noop_slices
from speccompile.compiler.lower.passes.write_rows import commit_columns, inline_codes, store_fp8, write_rows

PASSES: tuple[Pass, ...] = (
    ("whole_slices", remove_noop_slices, "TensorRT would lose the sizes of all that is computed from them"),
    ("store_fp8", store_fp8, "what the neutral graph only rounds lies in bytes there"),
    ("write_rows", write_rows, "TensorRT updates no caches of bytes: the engine writes their rows"),
    ("attend_masked", attend_masked, "no size comes from data; TensorRT fuses it into one flash attention a layer"),
    ("adjust_scattered", adjust_scattered, "standard operators, of a few tokens"),
    ("allow_expanded", allow_expanded, "TensorRT would compile a Where for an axis of 1 or of V, and not for both"),
    ("convolve_slices", convolve_slices, "TensorRT slices nothing inside a Scan, and a convolution has few taps"),
    ("inline_states", inline_states, "a recurrence token by token, in one order whatever the window"),
    ("commit_kept", commit_persistent, "what outlives a generation is written beside what was read"),
    ("commit_integers", commit_integers, "tokens are updated in place too, which TensorRT does for floats alone"),
    ("commit_columns", commit_columns, "attention finds a row in one column, whatever its window"),
    ("inline_codes", inline_codes, "codes are standard operators"),
    ("commit_scatter", commit_scatter, "the one form that TensorRT updates in place"),
    ("cast_like", cast_like, "TensorRT wants to know the type"),
    ("fold_constants", fold_constants, "TensorRT takes sequences and shapes for nothing but constants"),
    ("nucleus_bisected", nucleus_bisected, "TensorRT finds the 3840 largest at most, and branches are no fusions"),
    ("draw_blocks", draw_blocks, "a running sum over the vocabulary is no work for many cores"),
    *TIDY,
)
"""Norms and rotary embeddings stay decomposed: TensorRT recognizes them, and fuses them into neighboring kernels."""


def lower(model: ir.Model) -> dict[str, int]:
    """Lower in place. Return the number of rewrites of each pass."""
    return run_passes(model, PASSES)
