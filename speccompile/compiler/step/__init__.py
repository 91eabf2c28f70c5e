"""One round as torch modules: verify a window over committed caches, accept, commit, then draft the next window.

ops        neutral ops and their meaning in eager torch
attention  hook through which any transformers decoder attends to `[committed rows | in-step rows]`
layers     decoder layers and final norm of a model; skip attention or MLP of layers
frequencies freeze rotary frequencies that would change with the sequence length
recurrence hook for layers with a recurrent state; `recurrent_state`: these states in a pass
taps       read hidden states inside a model during its run
decoder    a transformers model as a function of tokens, positions and caches
sampling   distributions under the sampling settings, and draws among candidates
window     chain or tree layout of a window
verify     run the target over the window, accept, commit
draft      one file per drafting method
"""
