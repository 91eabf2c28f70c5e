"""Whisper: an encoder of audio features, and a decoder with suppressed tokens."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSpeechSeq2Seq, GenerationConfig, PretrainedConfig
from transformers.generation import (
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from speccompile.bundle.sources import FRAMES_PER_ROW
from speccompile.compiler.checkpoints.json_files import GENERATION_CONFIG
from speccompile.compiler.checkpoints.speech import TYPES
from speccompile.compiler.models.sourced import EAGER, SourcedModel, sourced
from speccompile.runtime.audio.examples import noise

AUTO_CLASS = AutoModelForSpeechSeq2Seq


def hears(config: PretrainedConfig) -> bool:
    """Return whether a config is of a speech-recognition model."""
    return config.model_type in TYPES


class SpeechModel(SourcedModel):
    """A `SourcedModel` for speech recognition. Proofs use random features: a source is their seed."""

    rules: GenerationConfig
    """The tokens that transformers suppresses."""

    def read(self, source: Any) -> None:
        """Encode features float32 [M, F], or noise with the seed `source`, for runs outside of a pass."""
        config = self.whole.config
        self.set_attn_implementation(EAGER)
        if not isinstance(source, Tensor):
            made = noise(source, config.num_mel_bins, FRAMES_PER_ROW * config.max_source_positions)
            source = torch.from_numpy(made)
        with torch.no_grad():
            self.encoded = self.encode(source[None].to(next(self.parameters()).device))

    def encode(self, source: Tensor) -> Tensor:
        """Return the encoder's states [B, E, H] for features float32 [B, M, F]."""
        found: Tensor = self.whole.get_encoder()(input_features=source)[0]
        return found

    def allowed(self, logits: Tensor, place: int) -> Tensor:
        """Return logits [V] of new token number `place`, with suppressed tokens at minus infinity."""
        rows = logits.new_zeros(place + 1, len(logits))
        rows[-1] = logits
        return self.suppress(rows)[-1]

    def suppress(self, logits: Tensor) -> Tensor:
        """Apply transformers' logits processors to logits [n, V] of the first n new tokens."""
        every, begin = self.rules.suppress_tokens, self.rules.begin_suppress_tokens
        processors = LogitsProcessorList()
        if begin:
            processors.append(SuppressTokensAtBeginLogitsProcessor(begin, begin_index=1))
        if every:
            processors.append(SuppressTokensLogitsProcessor(every))
        ids = [torch.zeros(1, 1 + place, dtype=torch.int64) for place in range(len(logits))]
        return torch.cat([processors(each, row[None]) for each, row in zip(ids, logits, strict=True)])


def speech_model(whole: nn.Module, folder: Path) -> SpeechModel:
    """Return the Whisper in `folder`, with its generation config, as a `SpeechModel`."""
    found = sourced(whole, SpeechModel)
    assert isinstance(found, SpeechModel)
    has_own = (folder / GENERATION_CONFIG).is_file()
    found.rules = (
        GenerationConfig.from_pretrained(folder, local_files_only=True)
        if has_own
        else GenerationConfig.from_model_config(whole.config)
    )
    return found
