"""Quality behind pictures, as a build measured it on synthetic ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEY = "images"
"""Key of the rows of pictures in the proof."""


@dataclass(frozen=True)
class EncoderLoss:
    """Loss by the precision of the encoder alone. rms_error: of its rows, relative to their root mean square."""

    precision: str
    rms_error: float
    same_argmax: float
    kl_divergence: float


@dataclass(frozen=True)
class ImageQuality:
    """Agreement of a bundle's next tokens behind pictures with transformers' in float32. tokens: number of compared
    ones; same_argmax: share with the same best token; kl_divergence: in nats; encoder: None for one in float32."""

    tokens: int
    same_argmax: float
    kl_divergence: float
    encoder: EncoderLoss | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> "ImageQuality | None":
        """Invert `dataclasses.asdict`; None stays None."""
        if data is None:
            return None
        encoder = data["encoder"]
        return cls(**{**data, "encoder": None if encoder is None else EncoderLoss(**encoder)})

    def describe(self) -> str:
        """Return the figures as a line of a table's head."""
        found = (
            f"behind synthetic pictures: the same best token as transformers for {100 * self.same_argmax:.2f} % of "
            f"{self.tokens} tokens, KL divergence {self.kl_divergence:.6f} nats"
        )
        if self.encoder is None:
            return found
        return f"{found}; by the encoder in {self.encoder.precision} alone {self.encoder.kl_divergence:.6f} nats"


def image_quality(proof: Mapping[str, Any], engine: str) -> ImageQuality | None:
    """Return an engine's quality in a proof; None where it was not measured, as without a proof."""
    rows: Sequence[Mapping[str, Any]] = proof.get(KEY, ())
    found = next((row for row in rows if engine in row.get("engines", ())), None)
    if found is None or "quality" not in found:
        return None
    return ImageQuality.from_json(found["quality"] | {"encoder": found.get("encoder")})
