"""The proof that speculation changes no result, from eager torch to the engine.

reference  transformers eager: logits and greedy tokens; `tolerance`: bounds of differences, and near-ties
graphs     neutral against eager, lowered against neutral; `weights`: quantized ones against the model's
drafts     drafts against transformers eager, by teacher forcing; `drawn`: sampled ones, and their distribution
tokens     speculative against autoregressive and the reference; `distribution`: samples against the target's own

In: graphs, prompts and a checkpoint. Out: rows of proof.json, or ProofError with the first difference.
Imported by `diagnose`, `drafters`, `build`, `train` and `cli`; imports `lower`, `runtime` and what lies below.
"""
