"""One head, or model with mask tokens, for each kind that was made for a target: any target of two layers or more."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformers import AutoModelForCausalLM, PretrainedConfig

from tests.heads.dflash import MARKOV, deepspec, zlab
from tests.heads.eagle import eagle
from tests.heads.eagle3 import eagle3
from tests.heads.hydra import hydra
from tests.heads.kangaroo import kangaroo
from tests.heads.medusa import faster_decoding
from tests.heads.p_eagle import p_eagle

MASK = 5


def pard(folder: Path, target: PretrainedConfig) -> Path:
    """A language model like the target, whose config names a mask token."""
    AutoModelForCausalLM.from_config(target).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pard_token": MASK}))
    return folder


HEADS: dict[str, Callable[[Path, PretrainedConfig], Path]] = {
    "pard": pard,
    "dflash": zlab,
    "dspark": partial(deepspec, markov=MARKOV),
    "p_eagle": partial(p_eagle, dialect="vllm", mask_token=MASK),
    "eagle3": partial(eagle3, boundaries=(1, 2, 2), draft_size=6),
    "eagle": eagle,
    "medusa": faster_decoding,
    "hydra": hydra,
    "kangaroo": partial(kangaroo, exit_layer=1, pickle=""),
}
"""Kind -> what writes its folder."""
