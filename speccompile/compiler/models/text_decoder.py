"""The text decoder of a multimodal checkpoint, as a causal language model of transformers."""

from torch import Tensor
from transformers import PretrainedConfig

from speccompile.compiler.checkpoints.multimodal import TEXT, decoder_names


def decoder_config(config: PretrainedConfig) -> PretrainedConfig:
    """The config of what is compiled: the text decoder's of a multimodal model, else `config` itself.

    The whole model ties the head to the embedding, or does not, by its own word, whatever its decoder's config says.
    """
    decoder = getattr(config, TEXT, None)
    if not isinstance(decoder, PretrainedConfig):
        return config
    decoder.tie_word_embeddings = config.tie_word_embeddings
    return decoder


def text_decoder(config: PretrainedConfig, tensors: dict[str, Tensor]) -> tuple[PretrainedConfig, dict[str, Tensor]]:
    """Config and tensors of what is compiled: as they are in a language model, of a multimodal checkpoint those of its
    text decoder, by the names that they have in a causal language model."""
    decoder = decoder_config(config)
    if decoder is config:
        return config, tensors
    return decoder, {new: tensors[name] for name, new in decoder_names(tensors).items()}
