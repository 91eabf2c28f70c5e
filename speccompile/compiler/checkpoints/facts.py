"""A checkpoint folder in Hugging Face layout, read without torch: the facts for a plan, and a check that it is
complete."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeGuard

from speccompile.compiler.checkpoints.encoder_decoder import decoder_sizes, is_encoder_decoder, read_source_facts
from speccompile.compiler.checkpoints.gguf.block_types import EXPERTS, QUANTIZED
from speccompile.compiler.checkpoints.gguf.conversion import read_index
from speccompile.compiler.checkpoints.json_files import CONFIG, GENERATION_CONFIG, config_count
from speccompile.compiler.checkpoints.known_types import refuse_other_models
from speccompile.compiler.checkpoints.layer_shapes import check_layers
from speccompile.compiler.checkpoints.layer_types import check_layer_types
from speccompile.compiler.checkpoints.layer_widths import with_layer_widths
from speccompile.compiler.checkpoints.multimodal import decoder_tensors, embedding_rows, text_config
from speccompile.compiler.checkpoints.other_kinds import refuse_other_kinds
from speccompile.compiler.checkpoints.quantization import quantization_of
from speccompile.compiler.checkpoints.shapes import check_head, check_shapes
from speccompile.compiler.checkpoints.states import recurrent_layers
from speccompile.compiler.checkpoints.weights import FLOAT_DTYPES, StoredTensor, files_of, stored_tensors
from speccompile.errors import CheckpointError
from speccompile.machine.formats.json_files import is_present, read_json_object, wrong
from speccompile.machine.formats.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MERGED
from speccompile.plan.plan import CheckpointFacts

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
CHAT_TEMPLATE = "chat_template.jinja"
NAMED_TEMPLATES = "additional_chat_templates"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, CHAT_TEMPLATE)

EXTENDED = ("yarn", "llama3", "linear")
"""Kinds of position scaling whose factor says how far it reaches."""
POSITION_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
"""Config keys of architectures for the longest sequence."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Config keys for the number of layers."""
STORED_LAYER_KEYS = ("num_layers_per_stack", *LAYER_KEYS)
"""Config keys for the number of stored layers: HRM runs the layers of its stacks several times."""
_NO_TOKEN, _LARGEST_ID = -1, 2**31 - 2
"""Token id that configs write for none, and the largest that bundles take."""
_GATE = "gate_proj"
"""Part of the name of a weight of experts that is joined with the one of `up_proj`: codes can be, and floats of one
type."""
HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")
"""Config keys for the width of the residual stream."""


def read_checkpoint(folder: Path) -> tuple[tuple[Path, ...], CheckpointFacts]:
    """Return the files of a checkpoint that will be read (relative to `folder`, which exists) and its facts; for a
    multimodal one those of its text decoder.

    Raise CheckpointError for files that are missing or invalid, UnsupportedModelError for other than language models of
    transformers, an encoder-decoder model of an unsupported kind, an unknown kind of layer, a multimodal checkpoint
    whose decoder is not supported, and an unsupported quantization method.
    """
    config = _read_config(folder)
    decoder = text_config(config, folder)
    refuse_other_models(config, folder / CONFIG)
    source = read_source_facts(config, folder) if is_encoder_decoder(config) else None
    stored = stored_tensors(folder)
    tensors = stored if decoder is None else decoder_tensors(stored, folder)
    check_layer_types(decoder or config, folder / CONFIG)
    _check_sizes(decoder or config, folder / CONFIG)
    sizes = decoder or (config if source is None else decoder_sizes(config))
    quantized = quantization_of(config, folder / CONFIG)
    if quantized is not None:
        quantized = with_layer_widths(quantized, tensors, folder)
    facts = CheckpointFacts(
        architecture=_architecture(config, folder),
        model_type=_model_type(config, folder),
        vocabulary_size=_vocabulary_size(sizes, None if decoder is None else embedding_rows(tensors), folder),
        positions=_positions(sizes),
        layers=config_count(sizes, *LAYER_KEYS),
        eos_token_ids=_eos_token_ids(folder),
        weight_bytes=sum(tensor.size for tensor in tensors.values()),
        tokenizer=is_present(folder / TOKENIZER),
        hidden_size=config_count(sizes, *HIDDEN_KEYS),
        left_out=len(stored) - len(tensors),
        quantization=_gguf_types(folder) if quantized is None else quantized.text,
        groups_of_4_bits=None if quantized is None else quantized.groups_of_4_bits,
        states=recurrent_layers(sizes),
        dtype=None if quantized else _float_dtype(tensors.values()),
        has_codes=_has_codes(folder, tensors),
        source=source,
    )
    # The layers of an encoder are numbered as the decoder's are.
    check_shapes(folder, tensors, facts.vocabulary_size, None if source else config_count(sizes, *STORED_LAYER_KEYS))
    if quantized is None:  # else their shapes are those of a packed form
        check_head(folder, config, stored, facts.vocabulary_size)
        check_layers(folder, sizes, tensors)
    return _read_files(folder, stored), facts


def _read_files(folder: Path, stored: Mapping[str, StoredTensor]) -> tuple[Path, ...]:
    """Return the files of a checkpoint that are read, relative to `folder`. stored: all of its tensors."""
    return (
        *_present(folder, CONFIG, GENERATION_CONFIG),
        *files_of(stored),
        *_merged_adapter(folder),
        *_present(folder, *TOKENIZER_FILES, *_named_templates(folder)),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raise CheckpointError without one, and as `refuse_other_kinds`."""
    config = read_json_object(folder / CONFIG)
    refuse_other_kinds(folder, config)
    if config is None:
        raise CheckpointError(
            f"{folder}: received a folder without {CONFIG}, expected a model in Hugging Face layout",
            hint="give the folder that holds config.json, model.safetensors and tokenizer.json",
        )
    return config


def _merged_adapter(folder: Path) -> tuple[Path, ...]:
    """Return the files of the adapter that is merged into the model, relative to its folder."""
    return _present(folder, MERGED, ADAPTER_CONFIG, ADAPTER_WEIGHTS) if is_present(folder / MERGED) else ()


def _has_codes(folder: Path, tensors: Mapping[str, StoredTensor]) -> bool:
    """See `CheckpointFacts.has_codes`."""
    has_any = any(tensor.dtype in QUANTIZED for tensor in tensors.values())
    gates = {name: tensor.dtype for name, tensor in tensors.items() if EXPERTS in name and _GATE in name}
    ups = {name: tensors[name.replace(_GATE, "up_proj")].dtype for name in gates}
    alike = all(ups[name] == dtype or {ups[name], dtype} <= QUANTIZED for name, dtype in gates.items())
    return has_any and alike and not is_present(folder / MERGED)


def _positions(sizes: dict[str, Any]) -> int | None:
    """Return the length of the longest sequence; with a scaling that a factor extends, which many configs name beside
    the length before it, the scaled one."""
    written, rope = config_count(sizes, *POSITION_KEYS), sizes.get("rope_parameters") or sizes.get("rope_scaling")
    if written is None or not isinstance(rope, dict) or (rope.get("rope_type") or rope.get("type")) not in EXTENDED:
        return written
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings") or written
    if not isinstance(factor, int | float) or not isinstance(original, int) or not isfinite(factor):
        return written
    return max(written, int(factor * original))


def _gguf_types(folder: Path) -> str | None:
    """Describe the types of tensors in GGUF files, None for files of another kind."""
    found = read_index(folder)
    return None if found is None else f"gguf: {found[0]}"


def special_ids(folder: Path, name: str) -> tuple[int, ...]:
    """Return the ids of `bos`, `eos` or `pad` in config.json, where a multimodal model may leave them to its text
    decoder. Raise CheckpointError."""
    path, key = folder / CONFIG, f"{name}_token_id"
    config = read_json_object(path) or {}
    decoder = text_config(config, folder) or {}
    return token_ids(config.get(key), key, path) or token_ids(decoder.get(key), key, path)


def token_ids(value: Any, key: str, path: Path) -> tuple[int, ...]:
    """Return the ids of a config's `eos_token_id` and the like: a number, a list of them, or null. Raise
    CheckpointError."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if all(type(one) is int and _NO_TOKEN <= one <= _LARGEST_ID for one in ids):
        return tuple(one for one in ids if one != _NO_TOKEN)
    raise wrong(path, f"{key}: {value!r}", "a token id, a list of token ids or null")


def _float_dtype(tensors: Iterable[StoredTensor]) -> str | None:
    """Return the float dtype that holds most bytes of the weights, None if most are no such floats."""
    sizes = Counter[str]()
    for tensor in tensors:
        sizes[tensor.dtype] += tensor.size
    return FLOAT_DTYPES.get(max(sizes, key=sizes.__getitem__, default=""))


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


def _vocabulary_size(config: dict[str, Any], rows: int | None, folder: Path) -> int:
    """Return the vocabulary size. rows: of the embedding, for configs that leave the size to transformers, as Gemma 3's
    does."""
    size = config.get("vocab_size", rows)
    if _is_count(size):
        return size
    raise wrong(folder / CONFIG, f"vocab_size: {size!r}", "a whole number above zero")


def _eos_token_ids(folder: Path) -> tuple[int, ...]:
    path = folder / GENERATION_CONFIG
    own = token_ids((read_json_object(path) or {}).get("eos_token_id"), "eos_token_id", path)
    return own or special_ids(folder, "eos")


def _check_sizes(config: dict[str, Any], path: Path) -> None:
    """Raise CheckpointError for a size that no model has. Lists, of architectures whose layers differ, are left to
    transformers, and so are zeros: a count of heads is 0 where no layer has attention."""
    for name in (
        *LAYER_KEYS,
        *HIDDEN_KEYS,
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ):
        value = config.get(name)
        if isinstance(value, bool | float | str) or (isinstance(value, int) and value < 0):
            raise wrong(path, f"{name}: {value!r}", "a whole number")


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _named_templates(folder: Path) -> list[str]:
    """Return the files of chat templates besides the default one: `additional_chat_templates/tool_use.jinja`."""
    return sorted(f"{NAMED_TEMPLATES}/{file.name}" for file in (folder / NAMED_TEMPLATES).glob("*.jinja"))


def _present(folder: Path, *names: str) -> tuple[Path, ...]:
    return tuple(Path(name) for name in names if is_present(folder / name))
