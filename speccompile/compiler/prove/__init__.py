"""The proof, from eager torch to the engine: nobody has to believe that speculation changes nothing.

noise      what float32 and its peers may differ by, and what counts as a near-tie
reference  transformers eager: logits and greedy tokens
graphs     neutral against eager, lowered against neutral
drafts     drafts against transformers eager, by teacher forcing
drawn      those that were drawn: their distribution, and the draws
weights    those in fewer bits against the model's
tokens     speculative against autoregressive on one engine, and against the reference
seeds      the same at temperature > 0, where drafts are certain
filters    what settings make of logits, in numpy; processors: in transformers
counts     what was drawn beside what the target lets expect; chi_square: whether that is chance
distribution  what an engine draws, against the target's own probabilities
quality    what a precision costs: perplexity of texts, and agreement with float32
"""
