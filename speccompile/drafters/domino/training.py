"""Train Domino: as DFlash, with corrections by the text's tokens. Write new heads in SpecForge's dialect."""

from pathlib import Path

from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash.training import BlockStudent, block_config, check_depth, initial_tensors, layer_ids
from speccompile.drafters.domino.drafter import DominoReader
from speccompile.drafters.domino.reading import own_shapes
from speccompile.drafters.initialization import (
    layer_shape,
    mask_token,
    random_tensors,
    renamed,
    target_sizes,
    write_head,
)
from speccompile.drafters.trainable import NewDrafter
from speccompile.drafters.weights import load_head
from speccompile.plan.head import Switch


def student(context: DrafterContext, depth: int) -> BlockStudent:
    """Return the trainable drafter. Raise RecipeError for a depth beyond the head's block."""
    check_depth(context.head, depth)
    reader = DominoReader(context.head, context.shape, context.ends(), depth)
    return BlockStudent(context.head, load_head(reader, context.head), depth)


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new head: DFlash's with a draft at every block position, whose first draft is not corrected, as in the
    published recipe. The corrections begin random and small: behind zeros nothing would reach the cell."""
    base, size = block_config(wanted), target_sizes(wanted)[1]
    said: dict[str, Switch] = {
        "gru_hidden_dim": int(wanted.sizes["gru_hidden_dim"]), "emb_dim": int(wanted.sizes["emb_dim"]),
        "pure_draft_prefix_len": 1 if wanted.depth > 1 else 0,
    }  # fmt: skip
    own = random_tensors(own_shapes(layer_shape(base), said, (size, size)), wanted.seed + 1)
    own["out_proj.weight"] *= 0.1
    own = renamed(own, [("up_proj.", "embed_proj.0."), ("out_proj.", "embed_proj.2.")])
    section = {
        "mask_token_id": mask_token(wanted), "target_layer_ids": layer_ids(wanted), "projector_type": "domino",
        "shift_label": True, **said,
    }  # fmt: skip
    config = {"architectures": ["DominoDraftModel"], **base, "block_size": wanted.depth, "dflash_config": section}
    write_head(folder, config, initial_tensors(wanted, layer_shape(base)) | own)
