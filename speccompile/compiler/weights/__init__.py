"""Weights stay where they lie.

A weight is a place in a file of the checkpoint and a way to read some of its rows as float32. torch modules, graphs,
quantizers and proofs hold such weights alone, and read a few rows at the moment that they need them: whatever a model's
size, a build holds one layer's product, not a model.

    source        what a weight is, and what becomes of it when it is turned, cut and put together: nothing is read
    checkpoint    the weights of a folder in Hugging Face layout
    tensor        a weight as a torch tensor, which reads itself when an operator needs numbers
    quantized     weights that a checkpoint stores in fewer bits, a file a format
    graph         a weight as a constant of an ONNX graph, which on disk names the checkpoint's own file
"""
