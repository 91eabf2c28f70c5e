"""Training data: files -> tokens and loss masks -> batches by seed and step.

rows          rows of the recipe's files: JSON lines, table rows, pieces of text, each with its place for errors
documents     checked documents of three kinds: prompts, conversations, text; `tokens`: their tokens and loss masks
shards        samples in a memory-mapped table; `data_cache`: folders that are written once per key
corpus        datasets and batches; `order`: epochs, and buckets of similar lengths
sounds        sounds of samples, by numbers that name a file and its language
prepare       the whole preparation: `prepare` and `prepare_prompts`
print_sample  a sample as readable text
features      the target's features of every sample, on the disk
"""
