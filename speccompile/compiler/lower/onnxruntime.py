"""Lowering of neutral ONNX for ONNX Runtime on a CPU: all passes in order, with their reasons."""

import onnx_ir as ir

from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.pass_list import TIDY, Pass, run_passes, shared
from speccompile.compiler.lower.passes.adjust_scattered import adjust_scattered
from speccompile.compiler.lower.passes.allow_where import allow_where
from speccompile.compiler.lower.passes.argmax_blocks import argmax_blocks
from speccompile.compiler.lower.passes.attend_kernel import attend_kernel
from speccompile.compiler.lower.passes.bare_normalization import bare_normalization
from speccompile.compiler.lower.passes.cancel_transposes import cancel_transposes
from speccompile.compiler.lower.passes.cast_like import cast_like
from speccompile.compiler.lower.passes.chain_kernels import chain_kernels
from speccompile.compiler.lower.passes.commit_scatter import commit_scatter
from speccompile.compiler.lower.passes.convolve_tail import convolve_tail
from speccompile.compiler.lower.passes.curve_kernels import curve_kernels
from speccompile.compiler.lower.passes.draw_blocks import draw_hot_blocks
from speccompile.compiler.lower.passes.flat_products import flat_products
from speccompile.compiler.lower.passes.fold_constants import fold_constants
from speccompile.compiler.lower.passes.fold_offsets import fold_offsets
from speccompile.compiler.lower.passes.fuse_gelu import fuse_gelu
from speccompile.compiler.lower.passes.fuse_head_split import fuse_head_split
from speccompile.compiler.lower.passes.fuse_rotary_tables import fuse_rotary_tables
from speccompile.compiler.lower.passes.gate_kernels import gate_kernels
from speccompile.compiler.lower.passes.gather_rows import gather_rows
from speccompile.compiler.lower.passes.halve_rotary_tables import halve_rotary_tables
from speccompile.compiler.lower.passes.integer_programs import integer_programs
from speccompile.compiler.lower.passes.layer_normalization import layer_normalization
from speccompile.compiler.lower.passes.low_rank_kernel import low_rank_kernel
from speccompile.compiler.lower.passes.merge_reshapes import merge_reshapes
from speccompile.compiler.lower.passes.norm_kernels import norm_kernels
from speccompile.compiler.lower.passes.nucleus_candidates import nucleus_candidates
from speccompile.compiler.lower.passes.ordered_sums import ordered_sums
from speccompile.compiler.lower.passes.partial_rotary_embedding import partial_rotary_embedding
from speccompile.compiler.lower.passes.remove_noop_slices import remove_noop_slices
from speccompile.compiler.lower.passes.rms_normalization import rms_normalization
from speccompile.compiler.lower.passes.rotary_embedding import rotary_embedding
from speccompile.compiler.lower.passes.skip_unused_argmax import skip_unused_argmax
from speccompile.compiler.lower.passes.softplus_kernels import logarithm, softplus_kernels
from speccompile.compiler.lower.passes.state_kernels import state_kernels
from speccompile.compiler.lower.passes.topk_blocks import topk_blocks

PASSES: tuple[Pass, ...] = (
    ("attend_kernel", attend_kernel, "no copy of the cache, and one order of summation whatever the window"),
    ("commit_scatter", commit_scatter, "in place under IOBinding"),
    ("adjust_scattered", adjust_scattered, "in place: a few tokens are written, and no vocabulary is read"),
    ("allow_where", allow_where, "what is chosen from is what the passes behind look for"),
    ("state_kernels", state_kernels, "a state is read once, and tokens are taken in one order whatever the window"),
    (
        "low_rank_kernel",
        low_rank_kernel,
        "rows read their own matrices, without a copy, in one order of summation",
    ),
    ("cast_like", cast_like, "else computed every round, with a warning on loading"),
    ("fold_constants", fold_constants, "the passes behind look for numbers"),
    ("whole_slices", remove_noop_slices, "the rest of a convolution that looked behind the window"),
    ("rms_normalization", rms_normalization, "one node for seven"),
    ("bare_normalization", bare_normalization, "one node for six, and one order of summation on every processor"),
    ("softplus", softplus_kernels, "one node for six, and a number's bits do not depend on those beside it"),
    ("logarithm", logarithm, "a number's bits do not depend on those beside it"),
    ("convolve_tail", convolve_tail, "one node for five"),
    ("layer_normalization", layer_normalization, "Cohere writes it out"),
    ("ordered_sums", ordered_sums, "a token's experts are added in one order whatever the window"),
    ("rotary_embedding", rotary_embedding, "one node for seven"),
    (
        "partial_rotary_embedding",
        partial_rotary_embedding,
        "models that turn some columns cut off the rest and join it again",
    ),
    ("flat_products", flat_products, "two nodes less a product, and none for the shapes"),
    ("gelu", fuse_gelu, "one node for eight"),
    ("half_tables", halve_rotary_tables, "the next pass looks for tables of half a head"),
    ("rotary_tables", fuse_rotary_tables, "one node for six, and the same bits on every processor"),
    ("curves", curve_kernels, "angles of other forms; a number's bits do not depend on those beside it"),
    shared("queries and keys are turned by the same tables, which the next pass compares"),
    ("head_rows", fuse_head_split, "one node for thirteen, and a third of the memory that they write"),
    ("fold_offsets", fold_offsets, "else added in every round, as norms whose weight is more than itself"),
    ("norm_kernels", norm_kernels, "a residual sum is read once less; the same bits on every processor"),
    ("gate_kernels", gate_kernels, "one node for three, or five where the projections are one"),
    ("merge_reshapes", merge_reshapes, "a drafter's passes are windows of one, whose heads need no moving"),
    ("turned_twice", cancel_transposes, "convolutions have their channels before their tokens, states behind"),
    ("gather_rows", gather_rows, "20 us instead of 210 for the row of 152000 that is drawn from"),
    ("argmax_wanted", skip_unused_argmax, "sampling rows do without: 60 us less at a vocabulary of 152000"),
    ("argmax_blocks", argmax_blocks, "7.5 us instead of 29 over 32000 logits"),
    ("topk_blocks", topk_blocks, "70 us instead of 270 for the 8 best of 152000 logits"),
    (
        "nucleus_candidates",
        nucleus_candidates,
        "0.2 ms instead of 140 at a vocabulary of 152000, and nothing without limits",
    ),
    ("draw_hot_blocks", draw_hot_blocks, "0.1 ms instead of 11 at a vocabulary of 152000"),
    *TIDY,
    ("integer_programs", integer_programs, "0.6 to 2 us less for all of its nodes but one, which are dozens a graph"),
    ("chains", chain_kernels, "0.6 us less for every kernel but the first, with the same bits"),
)


def lower(model: ir.Model) -> dict[str, int]:
    """Lower in place. Return the number of rewrites of each pass."""
    fired = run_passes(model, PASSES)
    add_functions(model)  # of the kernels that are called now
    return fired
