"""Neutral ONNX -> ONNX for ONNX Runtime on a CPU. The whole lowering, in order, with its reasons."""

import onnx_ir as ir

from speccompile.lower.pass_list import TIDY, Pass, run_passes
from speccompile.lower.passes.argmax_blocks import argmax_blocks
from speccompile.lower.passes.argmax_wanted import argmax_wanted
from speccompile.lower.passes.attend_sliced import attend_sliced
from speccompile.lower.passes.cast_like import cast_like
from speccompile.lower.passes.commit_scatter import commit_scatter
from speccompile.lower.passes.draw_blocks import draw_hot_blocks
from speccompile.lower.passes.fold_constants import fold_constants
from speccompile.lower.passes.gather_rows import gather_rows
from speccompile.lower.passes.layer_normalization import layer_normalization
from speccompile.lower.passes.merge_reshapes import merge_reshapes
from speccompile.lower.passes.nucleus_candidates import nucleus_candidates
from speccompile.lower.passes.partial_rotary_embedding import partial_rotary_embedding
from speccompile.lower.passes.rms_normalization import rms_normalization
from speccompile.lower.passes.rotary_embedding import rotary_embedding
from speccompile.lower.passes.skip_normalization import skip_normalization
from speccompile.lower.passes.topk_blocks import topk_blocks

PASSES: tuple[Pass, ...] = (
    ("attend_sliced", attend_sliced, "as fast as any form measured, and exact across window widths"),
    ("commit_scatter", commit_scatter, "in place under IOBinding"),
    ("cast_like", cast_like, "else computed every round, with a warning on loading"),
    ("fold_constants", fold_constants, "the passes behind look for numbers"),
    ("rms_normalization", rms_normalization, "one node for seven: 0.8 us instead of 2.8 at a window of five"),
    ("skip_normalization", skip_normalization, "a residual sum is read once less"),
    ("layer_normalization", layer_normalization, "Cohere writes it out"),
    ("rotary_embedding", rotary_embedding, "one node for seven: 0.7 us instead of 3.0 at a window of five"),
    (
        "partial_rotary_embedding",
        partial_rotary_embedding,
        "models that turn some columns cut off the rest and join it again",
    ),
    ("merge_reshapes", merge_reshapes, "a drafter's passes are windows of one, whose heads need no moving"),
    ("gather_rows", gather_rows, "20 us instead of 210 for the row of 152000 that is drawn from"),
    ("argmax_wanted", argmax_wanted, "sampling rows do without: 60 us less at a vocabulary of 152000"),
    ("argmax_blocks", argmax_blocks, "7.5 us instead of 29 over 32000 logits"),
    ("topk_blocks", topk_blocks, "70 us instead of 270 for the 8 best of 152000 logits"),
    (
        "nucleus_candidates",
        nucleus_candidates,
        "0.2 ms instead of 140 at a vocabulary of 152000, and nothing without limits",
    ),
    ("draw_hot_blocks", draw_hot_blocks, "0.1 ms instead of 11 at a vocabulary of 152000"),
    *TIDY,
)


def lower(model: ir.Model) -> dict[str, int]:
    """Lower in place. Returns how often each pass fired."""
    return run_passes(model, PASSES)
