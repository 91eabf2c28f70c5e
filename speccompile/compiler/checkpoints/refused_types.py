"""Model types of transformers whose code cannot be compiled right: refused by their name, before any work.

What is found out about a class when it is probed holds for all of its checkpoints; `python -m scripts.architectures`
tries each without this list, and a test compares the two.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.multimodal import TEXT
from speccompile.errors import UnsupportedModelError
from speccompile.machine.formats.json_files import read_json_object

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

SPARSE_KINDS = (
    "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse",
)  # fmt: skip
"""Kinds of layers that attend to selected or compressed rows, by their names in configs of transformers."""

INDEXED_TYPES = ("qwen4_exp", "qwen4_exp_text")
"""Model types of which every layer that is no linear attention is such a one, whatever its config calls it."""

HINT = "choose another target: docs/reference/support.md lists the model types that were built and proven"


def refuse_type(model_type: str, path: Path) -> None:
    """Raise UnsupportedModelError for a model type that cannot be compiled, or for layers of a kind that cannot. path:
    of its config.json."""
    for reason, types in REFUSED.items():
        if model_type in types:
            raise UnsupportedModelError(
                f"{path}: model_type: received {model_type!r}, which cannot be compiled: {reason}", hint=HINT
            )
    config = read_json_object(path) or {}
    for layer, kind in enumerate(_layer_kinds(config.get(TEXT) or config)):
        if kind in SPARSE_KINDS:
            raise UnsupportedModelError(
                f"{path}: received layer {layer} of type {kind!r}, which cannot be compiled: it chooses the rows "
                "that it attends to",
                hint=HINT,
            )


def _layer_kinds(config: Mapping[str, Any]) -> list[Any]:
    """Return the kinds of layers that transformers reads in a config; none where it lists none."""
    match config:
        case {"model_type": str(name)} if name in INDEXED_TYPES:
            listed = config.get("layer_types") or [SPARSE_KINDS[0]]
            return [each if each == "linear_attention" else SPARSE_KINDS[0] for each in listed]
        case {"layer_types": [*kinds]}:
            return kinds
        case {"sparse_attention_config": {"sparse_attention_freq": [*listed]}}:
            return [SPARSE_KINDS[-1] if each else "full_attention" for each in listed]
    return []
