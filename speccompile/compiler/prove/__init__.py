"""The proof that speculation changes no result, from eager torch to the engine.

tolerance  bounds of differences in float32 and other precisions; near-ties
reference  transformers eager: logits and greedy tokens
graphs     neutral against eager, lowered against neutral
drafts     drafts against transformers eager, by teacher forcing
drawn      sampled drafts: their distribution, and the draws
weights    quantized weights against the model's
tokens     speculative against autoregressive on one engine, and against the reference
seeds      equal tokens at temperature > 0 with deterministic drafts
filters    effect of sampling settings on logits, in numpy; processors: in transformers
counts     counts of samples and their expectation; chi_square: the test
distribution  samples of an engine against the target's own probabilities
quality    loss of a precision: perplexity of texts, and agreement with float32
"""
