"""GGUF files, the checkpoints of llama.cpp, read without torch and described as a folder in Hugging Face layout.

block_types    numbers and bytes of a block of each stored type
reader         metadata and tensor table of a file; every length and offset is checked against the file's size
splits         the files of a model that was split
metadata       typed access to the metadata, which knows what nobody has asked for
architectures  per `general.architecture`: config keys, names of tensors, and what the converter did to their values
model          a model, or the head of a drafter, in files
rope           rotary position embeddings
config         config.json of a model
heads          config.json of the head of a drafter
tensors        location, shape and undone conversion of each tensor of the Hugging Face model
text_splits    how byte-level tokenizers cut text, by name
tokenizer      tokenizer.json and tokenizer_config.json
given_tokenizer  the original tokenizer in its place
conversion     all of these files together

Nobody else reads GGUF: `speccompile.recipe.gguf` writes the files of `conversion` into a folder, and
`speccompile.compiler.weights.gguf` reads tensors.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
