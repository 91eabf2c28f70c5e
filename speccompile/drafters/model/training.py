"""Train a draft model: an instance of transformers' class, which is also compiled."""

import json
import shutil
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from speccompile.compiler.checkpoints.facts import TOKENIZER_FILES
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.compiler.checkpoints.speech import PREPROCESSOR
from speccompile.compiler.models import speech
from speccompile.compiler.models.sourced import answers_over, sourced
from speccompile.compiler.step.layers import find_layers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.initialization import llama_config
from speccompile.drafters.saving import write_config
from speccompile.drafters.trainable import NewDrafter, SourcedBatch, TeacherBatch, TrainableDrafter, rows_at
from speccompile.errors import CheckpointError

_LAYER_KEYS = ("decoder_layers", "num_decoder_layers", "num_hidden_layers")
"""Keys of a decoder's number of layers in configs of encoder-decoders."""
_TOKENIZER_FILES = (
    *TOKENIZER_FILES, "added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt", PREPROCESSOR
)  # fmt: skip
"""Files of tokenizers and of features of sounds that this project reads, and older ones that other programs read."""


def student(context: DrafterContext, depth: int) -> "ModelStudent":
    (model,) = context.inputs.models
    return ModelStudent(model.folder, context.vocabulary_size, depth)


class ModelStudent(TrainableDrafter):
    """Trainable draft model. It reads tokens alone, so the logits after a token are the same for every anchor."""

    even = True

    def __init__(self, folder: Path, target_size: int, depth: int) -> None:
        super().__init__()
        self.folder, self.depth = folder, depth
        self.network = _load(folder)
        self.rows = self.network.config.vocab_size
        self.size = min(self.rows, target_size)
        self.vocabulary = torch.arange(self.size) if self.size < target_size else None
        if self.network.config.is_encoder_decoder:  # the target's: states of equal encoders are equal
            self.network.get_encoder().requires_grad_(False)

    def forward(self, seen: TeacherBatch, anchors: Tensor, depth: int) -> list[Tensor]:
        """See `TrainableDrafter.forward`."""
        tokens, last = seen.tokens.clamp(max=self.rows - 1), seen.tokens.shape[1] - 1
        if isinstance(seen, SourcedBatch):
            read = seen.sources if seen.sources.is_floating_point() else seen.sources.clamp(max=self.rows - 1)
            logits = answers_over(self.network, read, seen.is_source, tokens).logits
        else:
            logits = self.network(tokens, attention_mask=seen.attention_mask.long(), use_cache=False).logits
        logits = logits[..., : self.size]
        return [rows_at(logits, (anchors + step).clamp(max=last)) for step in range(depth)]

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the model in Hugging Face layout, with its tokenizer."""
        held, cast = self.network.state_dict(), dict[int, Tensor]()
        for value in held.values():  # tied weights stay tied
            cast.setdefault(value.data_ptr(), value.detach().to("cpu", dtype))
        weights = {name: cast[value.data_ptr()] for name, value in held.items()}
        self.network.save_pretrained(folder, state_dict=weights)
        config = json.loads((folder / CONFIG).read_text())
        write_config(folder, config | {"dtype": str(dtype).removeprefix("torch.")})
        copy_tokenizer(self.folder, folder)


def _load(folder: Path) -> PreTrainedModel:
    """Load a model in float32. Raise CheckpointError for missing tensors, which transformers would fill randomly."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    kind = speech.AUTO_CLASS if speech.hears(config) else kind
    model, found = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True, output_loading_info=True)
    lacking = sorted(found["missing_keys"])
    if lacking:
        raise CheckpointError(
            f"{folder}: the checkpoint lacks {len(lacking)} tensors of {type(model).__name__}, first {lacking[0]}",
            hint="check that every shard is there and that config.json belongs to these weights",
        )
    return model


def new(folder: Path, wanted: NewDrafter) -> None:
    """Write a new Llama with random weights, tied embeddings and the target's tokenizer."""
    assert wanted.target is not None, "a language model has the target's tokenizer"
    if wanted.config.get("is_encoder_decoder"):
        write_decoder(folder, wanted.target, int(wanted.sizes["layers"]))
        return
    base = {key: value for key, value in llama_config(wanted).items() if value is not None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(wanted.seed)
        model = LlamaForCausalLM(LlamaConfig(**base | {"tie_word_embeddings": True}))
    model.save_pretrained(folder)
    copy_tokenizer(wanted.target, folder)


def write_decoder(folder: Path, target: Path, count: int) -> None:
    """Write an encoder-decoder with `count` layers of its decoder, evenly spread from the first to the last one, as
    distil-whisper begins (Gandhi et al. 2023)."""
    model = _load(target)
    layers = find_layers(sourced(model))
    places = [round(number * (len(layers) - 1) / max(count - 1, 1)) for number in range(count)]
    kept = {f"{place}": number for number, place in enumerate(places)}
    config = model.config
    inner = getattr(config, "decoder", None) or config
    name = next(each for each in _LAYER_KEYS if isinstance(getattr(inner, each, None), int))
    prefix = next(each for each, module in model.named_modules() if module is layers)
    weights = {}
    for key, value in model.state_dict().items():
        number, _, rest = key.removeprefix(f"{prefix}.").partition(".")
        if not key.startswith(f"{prefix}."):
            weights[key] = value
        elif number in kept:
            weights[f"{prefix}.{kept[number]}.{rest}"] = value
    setattr(inner, name, count)
    if getattr(inner, "layer_types", None):
        inner.layer_types = [inner.layer_types[place] for place in places]
    small = type(model)(config)
    small.load_state_dict(weights)
    small.generation_config = model.generation_config
    small.save_pretrained(folder)
    copy_tokenizer(target, folder)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer's files unchanged: transformers adds tokens to some tokenizers when it saves them."""
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
