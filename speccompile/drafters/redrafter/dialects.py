"""Dialect of ReDrafter's heads: the module of apple/ml-recurrent-drafter, alone or within its training's model."""

from speccompile.drafters.dialects import Dialect

APPLE = "Apple"

_NAMES = {
    r"(?:drafter\.)?(input_proj|rnn_u)\.(weight|bias)": r"\1.\2",
    r"(?:drafter\.)?rnn_w\.weight": "rnn_w.weight",
    r"(?:drafter\.)?lm_head\.(\d+)\.linear\.(weight|bias)": r"blocks.\1.\2",
    r"(?:drafter\.)?lm_head\.(\d+)\.weight": r"output.\1.weight",
}

DIALECTS = (Dialect(APPLE, keys=("exit_dim", "num_draft_layers"), names=_NAMES),)
"""See section 6 of the drafting methods' facts."""
