"""ReDrafter heads as Apple's training saves them."""

from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from tests.heads import random_tensors, write


def redrafter(
    folder: Path, target: PretrainedConfig, *, layers: int = 2, exit_dim: int = 0, rnn: bool = True, prefix: str = "",
    **more: Any,
) -> Path:  # fmt: skip
    """exit_dim: by default twice the target's width, where there is no projection before the blocks."""
    hidden, vocabulary = target.hidden_size, target.vocab_size
    width = exit_dim or 2 * hidden
    shapes: dict[str, tuple[int, ...]] = {f"lm_head.{layers}.weight": (vocabulary, width)}
    for layer in range(layers):
        shapes |= {f"lm_head.{layer}.linear.weight": (width, width), f"lm_head.{layer}.linear.bias": (width,)}
    if width != 2 * hidden:
        shapes |= {"input_proj.weight": (width, 2 * hidden), "input_proj.bias": (width,)}
    if rnn:
        shapes |= {"rnn_u.weight": (hidden, hidden), "rnn_u.bias": (hidden,), "rnn_w.weight": (hidden, hidden)}
    config = {
        "model_type": "recurrent_drafting_drafter", "architectures": ["Drafter"], "hidden_size": hidden,
        "vocab_size": vocabulary, "exit_dim": width, "num_draft_layers": layers, "num_lookback_tokens": -1, "rnn": rnn,
    }  # fmt: skip
    tensors = {prefix + name: tensor for name, tensor in random_tensors(shapes, 11, 2.0).items()}
    return write(folder, config | more, tensors)
