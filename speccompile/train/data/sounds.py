"""Audio files of samples for speech recognition. A sample begins with numbers that name a file and its language."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from speccompile.bundle.sources import AUDIO
from speccompile.plan.plan import ModelPlan
from speccompile.plan.sources import SourcePlan
from speccompile.runtime.audio.reader import read_sounds, transcript_start
from speccompile.train.data.documents import Sound

NUMBERS = 4
"""Numbers before the tokens of a sample: parts of the hash of the file's path, and the language's index by name."""
_PART = 2**31


def name_sound(sound: Sound, languages: Sequence[str]) -> list[int]:
    """Return the numbers that name an audio file. languages: names of the target's languages, [] if it has none."""
    parts = [sound.key >> 31 * part & _PART - 1 for part in range(NUMBERS - 1)]
    return [*parts, sorted(languages).index(sound.language) if sound.language is not None else 0]


class Sounds:
    """Audio files of a training, by their numbers."""

    def __init__(self, target: ModelPlan, sounds: Iterable[Sound]) -> None:
        assert target.facts.source is not None, "a target that hears has an encoder"
        self._about = SourcePlan(1, target.facts.source).to_json()
        self._languages = sorted(self._about["languages"])
        self._paths = {tuple(name_sound(each, self._languages)): each.path for each in sounds}

    def start(self, numbers: Sequence[int]) -> list[int]:
        """Return the start tokens of a transcript."""
        language = self._languages[numbers[NUMBERS - 1]] if self._languages else None
        return transcript_start(self._about, language, None)

    def asked(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the options of `Bundle.generate` for an audio file: its path, and the start of its transcript."""
        return {"prompt": self.start(numbers), AUDIO: str(self._path(numbers))}

    def hear(self, numbers: Sequence[Sequence[int]]) -> Tensor:
        """Return features float32 [B, M, F] of audio files. Raise PromptError for a file that is no audio, or longer
        than the encoder reads."""
        found = [read_sounds(self._path(each), self._about[AUDIO])[0] for each in numbers]
        return torch.stack([torch.from_numpy(each) for each in found])

    def _path(self, numbers: Sequence[int]) -> Path:
        return self._paths[tuple(numbers[:NUMBERS])]
