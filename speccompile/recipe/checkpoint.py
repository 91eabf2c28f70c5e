"""A checkpoint folder in Hugging Face layout, read without torch: the facts that a plan needs, and that it is whole."""

from pathlib import Path
from typing import Any, TypeGuard

from speccompile.checkpoints.objects import CONFIG, read_object, wrong
from speccompile.checkpoints.weights import weight_files
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.recipe.plan import CheckpointFacts

GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
CHAT_TEMPLATE = "chat_template.jinja"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, CHAT_TEMPLATE)

POSITION_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
"""What architectures call the longest sequence that they take."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What they call the number of their layers."""
HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")
"""What they call the width of the residual stream."""


def read_checkpoint(folder: Path) -> tuple[tuple[Path, ...], CheckpointFacts]:
    """The files of a checkpoint that will be read (relative to `folder`, which exists) and its facts.

    Raises CheckpointError for files that are missing or not what they should be, UnsupportedModelError for a
    multimodal checkpoint.
    """
    config = read_object(folder / CONFIG)
    if config is None:
        raise CheckpointError(
            f"{folder}: received a folder without {CONFIG}, expected a model in Hugging Face layout",
            hint="give the folder that holds config.json, model.safetensors and tokenizer.json",
        )
    weights, weight_bytes = weight_files(folder)
    facts = CheckpointFacts(
        architecture=_architecture(config, folder),
        model_type=_model_type(config, folder),
        vocabulary_size=_vocabulary_size(config, folder),
        positions=_count(config, POSITION_KEYS),
        layers=_count(config, LAYER_KEYS),
        eos_token_ids=_eos_token_ids(config, folder),
        weight_bytes=weight_bytes,
        tokenizer=(folder / TOKENIZER).is_file(),
        hidden_size=_count(config, HIDDEN_KEYS),
    )
    return (*_present(folder, CONFIG, GENERATION_CONFIG), *weights, *_present(folder, *TOKENIZER_FILES)), facts


def token_ids(value: Any, key: str, path: Path) -> tuple[int, ...]:
    """The ids of a config's `eos_token_id` and the like: a number, a list of them, or null. Raises CheckpointError."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        return tuple(ids)
    raise wrong(path, f"{key}: {value!r}", "a token id, a list of token ids or null")


def _architecture(config: dict[str, Any], folder: Path) -> str:
    match config.get("architectures"):
        case [str(architecture), *_]:
            return architecture
        case other:
            raise wrong(folder / CONFIG, f"architectures: {other!r}", 'a list such as ["LlamaForCausalLM"]')


def _model_type(config: dict[str, Any], folder: Path) -> str:
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        return model_type
    raise wrong(folder / CONFIG, f"model_type: {model_type!r}", 'text such as "llama"')


def _vocabulary_size(config: dict[str, Any], folder: Path) -> int:
    size = config.get("vocab_size")
    if _is_count(size):
        return size
    if "text_config" in config:
        raise UnsupportedModelError(
            f"{folder / CONFIG}: received a multimodal checkpoint (its language model is described in text_config), "
            "expected a language model alone",
            hint="save the language model of the checkpoint as a checkpoint of its own",
        )
    raise wrong(folder / CONFIG, f"vocab_size: {size!r}", "a whole number above zero")


def _eos_token_ids(config: dict[str, Any], folder: Path) -> tuple[int, ...]:
    path = folder / GENERATION_CONFIG
    return token_ids((read_object(path) or {}).get("eos_token_id"), "eos_token_id", path) or token_ids(
        config.get("eos_token_id"), "eos_token_id", folder / CONFIG
    )


def _count(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """The number above zero that stands under the first of some names, or None."""
    return next((config[name] for name in names if _is_count(config.get(name))), None)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _present(folder: Path, *names: str) -> tuple[Path, ...]:
    return tuple(Path(name) for name in names if (folder / name).is_file())
