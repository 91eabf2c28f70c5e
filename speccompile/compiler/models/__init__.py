"""Models of transformers as torch modules whose attention is known to go through the attention hook.

In: a checkpoint folder. Out: an eager module over lazy weights, or UnsupportedModelError.
Imported by `lower` and all above it; imports `step`, `weights` and `checkpoints`.
"""
