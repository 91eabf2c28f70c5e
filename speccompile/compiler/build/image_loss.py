"""The loss by the precision of an encoder of pictures, beside float32, and its bound."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from speccompile.compiler.build.pictured_drafts import PicturedPrompt
from speccompile.compiler.build.quality import above
from speccompile.compiler.models.image_inputs import given_rows, image_features
from speccompile.compiler.prove import quality
from speccompile.errors import ProofError


def measure_loss(prompt: PicturedPrompt, rows: Tensor) -> dict[str, float]:
    """Return what an encoder's precision changes: rms_error of its rows float32 [n, W], relative to their root mean
    square, and transformers' next tokens over these rows beside those over its own."""
    own = image_features(prompt.whole, prompt.family, prompt.shown)
    found = []
    for context in (given_rows(prompt.whole, rows), nullcontext()):
        with context:
            logits = prompt.logits()[:-1]
        found.append(quality.predictions([(0, logits)], [prompt.ids], logits.shape[1], "pictures"))
    agreed = quality.agreement(*found)
    error = float(((rows - own).square().mean() / own.square().mean()).sqrt())
    return {"rms_error": round(error, 6)} | {name: agreed[name] for name in ("same_argmax", "kl_divergence")}


def check_loss(loss: Mapping[str, Any], most: float, tokens: int) -> None:
    """Raise ProofError for a loss of more than `most` nats. tokens: number of those over which it was measured."""
    if (lost := loss["kl_divergence"]) > most:
        raise ProofError(
            f"target.encoder_precision: an encoder in {loss['precision']} changes the target's probabilities behind "
            f"pictures by {lost:.6f} nats (KL divergence over {tokens} tokens; {100 * loss['same_argmax']:.2f} % have "
            f"the same best token; its rows differ by {100 * loss['rms_error']:.2f} %), expected at most {most:g}, "
            "which is prove.max_encoder_divergence",
            hint="set target.encoder_precision to float32, or accept the loss: prove.max_encoder_divergence="
            f"{above(lost)}",
        )
