"""Index over a corpus for retrieval drafting (REST, He et al. 2023): it finds all occurrences of given tokens.

In: texts of a corpus (`corpus`), which `build` tokenizes and whose suffixes `suffixes` sorts. Out: a memory-mapped
folder (`files`), and a proposer of drafts from it (`search`, `votes`, `retrieval`). Counts are integers and ties have
rules, so that every machine proposes the same drafts.
No torch. Imported by `runtime`, `recipe`, `compiler`, `train` and `cli`; imports `bundle` and what lies below.
"""
