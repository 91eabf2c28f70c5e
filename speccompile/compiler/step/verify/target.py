"""The target's distribution under the sampling settings, and its own choice, at the rows of a round."""

from typing import NamedTuple

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.sampling import Adjustments, Settings, apply_temperature_and_penalty


class Target(NamedTuple):
    """The target at R rows, row r being that of node r; V tokens.

    logits float32 [B, R, V], adjusted, penalized, divided by a temperature above zero, and HIDDEN for tokens that are
    not allowed; best int64 [B, R], their argmax in batch slots that do not sample. All other fields are None in greedy
    graphs: is_sampled bool [B, 1]; probs float32 [B, R, V]; threshold and mass float32 [B, R], as `ops.nucleus` gives
    them; uniforms float32 [B, R], one for each depth.
    """

    logits: Tensor
    best: Tensor
    is_sampled: Tensor | None = None
    probs: Tensor | None = None
    threshold: Tensor | None = None
    mass: Tensor | None = None
    uniforms: Tensor | None = None


class Timestamps(NamedTuple):
    """Slots that write times, bool [B], and the first of the tokens of times, behind which there are no others."""

    slots: Tensor
    first: int

    def hide_text(self, logits: Tensor) -> Tensor:
        """Return bool [B, R, V], true for the tokens that are no times where all times together are more probable than
        every other token: Whisper's last rule. logits float32 [B, R, V], adjusted and penalized, at temperature 1, of
        allowed tokens: transformers applies the rule behind its own processors and before the temperature."""
        times, text = logits[..., self.first :], logits[..., : self.first].amax(-1, keepdim=True)
        best = times.amax(-1, keepdim=True)
        total = best + (times - best).exp().sum(-1, keepdim=True).log()
        is_text = torch.arange(logits.shape[-1], device=logits.device) < self.first
        return (total > text) & self.slots[:, None, None] & is_text


def greedy_target(logits: Tensor, allowed: Tensor | None = None, times: Timestamps | None = None) -> Target:
    """Return the target in a greedy graph. logits float32 [B, R, V]; allowed: see `ops.allow`."""
    if allowed is not None:
        logits = ops.allow(logits, allowed)
    if times is not None:
        logits = torch.where(times.hide_text(logits), ops.HIDDEN, logits)
    return Target(logits, logits.argmax(-1))


def sampling_target(
    logits: Tensor, settings: Settings, seen: Tensor, uniforms: Tensor, allowed: Tensor | None = None,
    times: Timestamps | None = None, adjustments: Adjustments | None = None,
) -> Target:  # fmt: skip
    """Return the target in a sampling graph. seen int64 [B, R, H]: the tokens before each row; uniforms float32 [B, R];
    allowed: see `ops.allow`."""
    heated = apply_temperature_and_penalty(logits, settings, seen, adjustments)
    if allowed is not None:  # after the temperature, which might otherwise raise hidden logits to the allowed ones
        heated = ops.allow(heated, allowed)
    if times is not None:
        assert allowed is not None, "rules of times are masks too"
        temperature = torch.where(settings.temperature > 0, settings.temperature, 1.0)[:, None, None]
        heated = torch.where(times.hide_text(ops.allow(heated * temperature, allowed)), ops.HIDDEN, heated)
    probs = torch.softmax(heated, -1)
    threshold, mass = ops.nucleus(probs, settings.top_k, settings.top_p, settings.min_p)
    is_sampled = (settings.temperature > 0)[:, None]
    best = torch.where(is_sampled, 0, heated.argmax(-1))  # unused where is_sampled: lowerings leave it out
    return Target(heated, best, is_sampled, probs, threshold, mass, uniforms)


def choices(target: Target, depths: Tensor | None) -> Tensor:
    """Return int64 [B, R]: the target's token after every node, drawn or, without a temperature, the best.

    depths int64 [B, M] of the nodes; None for a chain. Nodes of one depth share its uniform: at most one of them lies
    on the path.
    """
    uniforms = target.uniforms
    if uniforms is None:
        return target.best
    if depths is not None:
        rows = torch.arange(uniforms.shape[1], device=uniforms.device)
        depth = depths.gather(1, rows.clamp(max=depths.shape[1] - 1).expand(depths.shape[0], -1))
        uniforms = uniforms.gather(1, torch.minimum(depth, rows[-1:]))
    drawn = ops.draw(target.probs, target.threshold, uniforms)
    return torch.where(target.is_sampled, drawn, target.best)


def at_row(values: Tensor, rows: Tensor) -> Tensor:
    """Gather values [B, R] at rows int64 [B, P]; an index beyond the last row reads the last row."""
    return values.gather(1, rows.clamp(max=values.shape[1] - 1))


def at_token(values: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Gather values [B, R, V] at rows int64 [B, P] and tokens int64 [B, P, ..]; an index beyond the last row reads the
    last row."""
    n_rows, size = values.shape[1:]
    row = rows.clamp(max=n_rows - 1).reshape(*rows.shape, *[1] * (tokens.dim() - rows.dim()))
    flat = values.reshape(values.shape[0], -1).gather(1, (row * size + tokens).flatten(1))
    return flat.reshape(tokens.shape)
