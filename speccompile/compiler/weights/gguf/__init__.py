"""Tensors of GGUF files as lazy weights: blocks are dequantized when rows are read.

dequantize    numbers of blocks, bit for bit those of the package gguf (`gguf.quants.dequantize`)
weight        a lazy weight in blocks, and what undoes the converter's changes
sources       all weights of a folder that describes GGUF files
"""
