"""The round as torch modules: a window over committed caches, verified, accepted, committed; then the next draft.

ops        the neutral ops, with their meaning in eager torch
attention  the hook through which any transformers decoder attends to `[committed rows | in-step rows]`
layers     where a model has its layers and its final norm, and how to skip layers
frequencies rotary ones that would change with the sequence, pinned
recurrence the hook for layers that keep a state; `carried`: these states in a pass
taps       what is read inside a model as it runs
decoder    a transformers model as a function of tokens, positions and caches
sampling   distributions as the host's settings shape them, and drawing from candidates
window     how the tokens of a window follow each other
verify     the target over the window, acceptance, commit
draft      one file per drafter family
"""
