"""One round as torch modules: verify a window over committed caches, accept, commit, then draft the next window.

`ops` are the neutral ops in eager torch; `attention` and `recurrence` the hooks by which any transformers decoder reads
caches and states; `decoder` a model as a function of tokens, positions and caches; `sampling` the distributions.
`verify` runs the target over the window, accepts and commits; `draft` has what drafters share.

In: a module of transformers and the contract of buffers. Out: modules that `lower` traces.
Imported by `models`, `lower`, `prove`, `drafters` and `build`; imports `weights` and what lies below.
"""
