"""GGUF files, the checkpoints of llama.cpp, read without torch and described as a folder in Hugging Face layout.

`reader` reads untrusted files, `metadata` records which keys were asked for, `architectures` has a row of data for each
architecture, `conversion` puts config, tensors and tokenizer together.

In: GGUF files. Out: config.json, tokenizer.json and the places of tensors; or CheckpointError.
Imported by `recipe.gguf`, which writes these files, `compiler.weights.gguf`, which reads tensors, and readers of facts.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
