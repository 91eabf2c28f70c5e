"""Many requests over bundles: `scheduler` (the batch slots of one), `http` (OpenAI's API), `batch` (files), `triton`
(NVIDIA's server), `cluster` (several machines, by Ray).

In: requests, from any thread or socket. Out: their answers, piece by piece.
Imported by `cli`; imports `runtime` and what lies below it, and never the compiler's side.
"""
