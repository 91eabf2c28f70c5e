"""The proof that speculation changes no result, from eager torch to the engine.

reference  transformers eager: logits and greedy tokens; `tolerance`: bounds of differences, and near-ties
graphs     neutral against eager, lowered against neutral; `weights`: quantized ones against the model's
drafts     drafts against transformers eager, by teacher forcing; `drawn`: sampled ones, and their distribution
tokens     speculative against autoregressive and the reference; `seeds`: at temperature > 0, deterministic drafts
distribution  samples of an engine against the target's own probabilities; `counts` of them, `chi_square`: the test
filters    effect of sampling settings on logits, in numpy; `processors`: in transformers
quality    loss of a precision: perplexity of texts, and agreement with float32
"""
