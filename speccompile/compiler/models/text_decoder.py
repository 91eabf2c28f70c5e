"""The text decoder of a multimodal checkpoint, as a causal language model of transformers."""

from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from speccompile.compiler.checkpoints.multimodal import CAUSAL, TEXT, causal_config, decoder_names


def decoder_config(config: PretrainedConfig) -> PretrainedConfig:
    """Return the config of the compiled model: the text decoder's of a multimodal model, else `config` itself.

    The whole model's config decides whether the head is tied to the embedding, not the decoder's.
    """
    decoder = getattr(config, TEXT, None)
    if not isinstance(decoder, PretrainedConfig):
        return config
    if decoder.model_type in CAUSAL:
        decoder = AutoConfig.for_model(**causal_config(decoder.to_dict()))
    decoder.tie_word_embeddings = config.tie_word_embeddings
    return decoder


def text_decoder(config: PretrainedConfig, tensors: dict[str, Tensor]) -> tuple[PretrainedConfig, dict[str, Tensor]]:
    """Return config and tensors of the compiled model: unchanged for a language model; for a multimodal checkpoint
    those of its text decoder, by their names in a causal language model."""
    decoder = decoder_config(config)
    if decoder is config:
        return config, tensors
    return decoder, {new: tensors[name] for name, new in decoder_names(tensors).items()}
