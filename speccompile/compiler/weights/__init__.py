"""Lazily read weights: they stay in the checkpoint's files.

A weight is a location in a file of the checkpoint and a reader of its rows as float32. torch modules, graphs,
quantizers and proofs hold such weights alone, and read a few rows at a time when they need them: a build of any model
holds one layer's product in memory, not a model.

open_file     open files of a checkpoint
source        a lazy weight, and its transposed, sliced and concatenated views: nothing is read
checkpoint    the weights of a folder in Hugging Face layout
tensor        a weight as a torch tensor, which reads itself when an operator needs its values
quantized     pre-quantized weights of a checkpoint, one file per format
graph         a weight as a constant of an ONNX graph, which on disk names the checkpoint's own file
"""
