"""Lazily read weights: they stay in the checkpoint's files, and a few rows at a time are read as float32.

A build of any model holds one layer's product in memory, not a model: torch modules, graphs, quantizers and proofs hold
such weights alone. `source` is a lazy weight and its views, `checkpoint` the weights of a folder, `tensor` a weight for
torch, `graph` a constant of an ONNX graph, `quantized` and `gguf` the formats of pre-quantized weights.

In: a checkpoint folder. Out: weights by their names there.
Imported by the compiler's other rooms and all above them; imports `checkpoints`.
"""
