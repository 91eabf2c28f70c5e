"""One round as torch modules: verify a window over committed caches, accept, commit, then draft the next window.

ops        neutral ops and their meaning in eager torch
attention  hook through which any transformers decoder attends to `[committed rows | in-step rows]`
recurrence hook for layers with a recurrent state; `recurrent_state`: these states in a pass
layers     decoder layers and final norm of a model; `taps`: hidden states inside; `frequencies`: of rotary positions
decoder    a transformers model as a function of tokens, positions and caches
sampling   distributions under the sampling settings, and draws among candidates
verify     run the target over the window, whose layout is `window`'s, accept, commit; `draft`: the drafters
"""
