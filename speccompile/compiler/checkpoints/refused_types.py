"""Model types of transformers whose code cannot be compiled right: refused by their name, before any work.

What is found out about a class when it is probed holds for all of its checkpoints; `python -m scripts.architectures`
tries each without this list, and a test compares the two.
"""

from pathlib import Path

from speccompile.errors import UnsupportedModelError

REFUSED = {
    "its layers attend without transformers' attention interface": (
        "big_bird", "bloom", "cpmant", "falcon", "gpt_neo", "gpt_neox_japanese", "megatron-bert", "mpt", "mvp",
        "openai-gpt", "prophetnet", "reformer", "rembert", "trocr", "xglm", "xlm", "xlnet",
    ),
    "its layers choose the rows that they attend to": (
        "axk2", "deepseek_v32", "deepseek_v4", "dots3_note", "dots3_note_text", "glm_moe_dsa", "hy_v4",
    ),
    "it counts its positions otherwise than from 0, one a token": (
        "camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
    ),
    "its layers expect other caches or masks than a compiled model has": (
        "blt", "doge", "git", "roformer", "rwkv", "xlstm", "zaya",
    ),
    "its attention adds a bias of positions or sinks that caches do not have": (
        "inkling2_loop_text", "inkling2_text", "inkling_text",
    ),
    "its experts are chosen by a loop over data, which cannot be traced": ("dbrx", "longcat_flash"),
}  # fmt: skip
"""Reason -> model types."""

HINT = "choose another target: docs/reference/support.md lists the model types that were built and proven"


def refuse_type(model_type: str, path: Path) -> None:
    """Raise UnsupportedModelError for a model type that cannot be compiled. path: of its config.json."""
    for reason, types in REFUSED.items():
        if model_type in types:
            raise UnsupportedModelError(
                f"{path}: model_type: received {model_type!r}, which cannot be compiled: {reason}", hint=HINT
            )
