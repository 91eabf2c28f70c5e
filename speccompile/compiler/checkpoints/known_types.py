"""Model types that transformers knows, read from its files: importing it with torch takes many seconds, in which a
mistake would wait for its message."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.multimodal import TEXT, TYPES
from speccompile.errors import UnsupportedModelError

HINT = "give a model that predicts the next token: docs/reference/support.md lists those that were proven"

_LANGUAGE_MODELS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
)
"""Mappings in transformers/models/auto/modeling_auto.py of the classes that are compiled."""

_OTHER_HEADS = re.compile(
    r"(ForMaskedLM|Classification|ForQuestionAnswering|ForMultipleChoice|RewardModel|EncoderModel)$"
)
"""End of the names of classes that do not predict the next token; their weights lack its head, or their layers see what
comes later."""


def refuse_other_models(config: Mapping[str, Any], path: Path) -> None:
    """Raise UnsupportedModelError for the config of a model that transformers does not know, or that predicts no next
    token. path: of the file. Multimodal models are left to `text_config`, and all to transformers, later, where the
    files of its version are laid out otherwise."""
    model_type, known, models = config.get("model_type"), known_types(), language_models()
    if known and isinstance(model_type, str) and model_type not in known:
        raise UnsupportedModelError(
            f"{path}: model_type: received {model_type!r}, which this version of transformers does not know",
            hint="only architectures that come with transformers can be compiled; remote code is never run",
        )
    if models and isinstance(model_type, str) and model_type not in models and TEXT not in config:
        raise UnsupportedModelError(
            f"{path}: model_type: received {model_type!r}, which is no language model in transformers", hint=HINT
        )
    match config.get("architectures"):
        case [str(name), *_] if _OTHER_HEADS.search(name) and not config.get("is_decoder"):
            raise UnsupportedModelError(
                f"{path}: architectures: received {name!r}, which does not predict the next token", hint=HINT
            )


@cache
def known_types() -> frozenset[str]:
    """Return the model types that have a config in transformers; none where they are not found."""
    texts = _read("auto_mappings.py") + _read("configuration_auto.py")
    return frozenset(re.findall(r'"([^"]+)"(?:, "\w+Config"\)|: "\w+Config")', texts))


@cache
def language_models() -> frozenset[str]:
    """Return the model types that have a class of a language model, or hold one as their text decoder; none where they
    are not found."""
    text = _read("modeling_auto.py")
    parts = [re.search(rf"^{name} = OrderedDict\((.*?)^\)", text, re.M | re.S) for name in _LANGUAGE_MODELS]
    if None in parts:
        return frozenset()
    return frozenset(TYPES).union(*(re.findall(r'\("([^"]+)",', part[1]) for part in parts if part is not None))


def _read(name: str) -> str:
    """Return the text of a file of transformers' automatic classes, "" where there is none."""
    spec = find_spec("transformers")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (file := Path(folder) / "models" / "auto" / name).is_file():
            return file.read_text(encoding="utf-8")
    return ""
