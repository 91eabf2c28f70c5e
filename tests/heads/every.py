"""One head, or model with mask tokens, for each kind that was made for a target: any target of two layers or more."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import AutoModelForCausalLM, PretrainedConfig

from tests.heads import random_tensors, write
from tests.heads.assistant import assistant
from tests.heads.dflash import MARKOV, deepspec, domino, zlab
from tests.heads.eagle import eagle
from tests.heads.eagle3 import eagle3
from tests.heads.hydra import hydra
from tests.heads.kangaroo import kangaroo
from tests.heads.medusa import faster_decoding
from tests.heads.mtp import mtp_head
from tests.heads.p_eagle import p_eagle
from tests.heads.pard2 import pard2
from tests.heads.redrafter import redrafter
from tests.json_files import merge_json

MASK = 5


def pard(folder: Path, target: PretrainedConfig) -> Path:
    """Return a language model like the target, whose config names a mask token."""
    AutoModelForCausalLM.from_config(target).save_pretrained(folder)
    merge_json(folder / "config.json", {"pard_token": MASK})
    return folder


def masks(folder: Path, target: PretrainedConfig, count: int = 3) -> Path:
    """Write PaSS's trained embeddings, as wide as the target."""
    shapes = {"mask_embeddings": (count, target.hidden_size)}
    return write(folder, {"hidden_size": target.hidden_size}, random_tensors(shapes, 7))


def bita(folder: Path, target: PretrainedConfig, count: int = 3, prompts: int = 2, *, projection: int = 0) -> Path:
    """Write mask tokens and a prefix as the published code does. projection: the width of the MLP that makes it."""
    layers, heads = target.num_hidden_layers, target.num_attention_heads
    key_heads = getattr(target, "num_key_value_heads", heads)
    width = getattr(target, "head_dim", None) or target.hidden_size // heads
    rows, inside = 2 * layers * key_heads * width, "model.prefix_encoder."
    config = {
        "hidden_size": target.hidden_size, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_heads, "head_dim": width, "vocab_size": target.vocab_size, "mask_num": count,
        "mask_diff": True, "prompt_num": prompts, "prefix_projection": bool(projection),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"model.mask_tokens.weight": (count, target.hidden_size)}
    if projection:
        config["prefix_hidden_size"] = projection
        shapes[f"{inside}embedding.weight"] = (prompts, target.hidden_size)
        shapes |= {f"{inside}trans.0.weight": (projection, target.hidden_size), f"{inside}trans.0.bias": (projection,)}
        shapes |= {f"{inside}trans.2.weight": (rows, projection), f"{inside}trans.2.bias": (rows,)}
    else:
        shapes[f"{inside}embedding.weight"] = (prompts, rows)
    return write(folder, config, random_tensors(shapes, 8))


HEADS: dict[str, Callable[[Path, PretrainedConfig], Path]] = {
    "pard": pard,
    "pard2": pard2,
    "mtp": mtp_head,
    "dflash": zlab,
    "dspark": partial(deepspec, markov=MARKOV),
    "domino": domino,
    "p_eagle": partial(p_eagle, dialect="vllm", mask_token=MASK),
    "eagle3": partial(eagle3, boundaries=(1, 2, 2), draft_size=6),
    "eagle": eagle,
    "medusa": faster_decoding,
    "hydra": hydra,
    "redrafter": redrafter,
    "kangaroo": partial(kangaroo, exit_layer=1, pickle=""),
    "assistant": assistant,
    "pass": masks,
    "bita": bita,
}
"""Kind -> what writes its folder."""
