"""The round as torch modules: a window over committed caches, verified, accepted, committed; then the next draft.

ops        the two neutral ops, with their meaning in eager torch
attention  the hook through which any transformers decoder attends to `[committed rows | in-step rows]`
decoder    a transformers model as a function of tokens, positions and caches
verify     the target over the window, acceptance, commit
draft      one file per drafter family
"""
