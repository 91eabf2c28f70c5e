"""An index over a corpus, from which drafts are retrieved (REST, He et al. 2023): every place where some tokens stand.

In: texts, cut into tokens (`corpus`), whose suffixes `build` and `suffixes` sort. Out: a folder mapped into memory
(`files`), and a proposer of drafts over it (`search`, `votes`, `retrieval`): counts are integers and ties have rules,
so that every machine proposes the same.
No torch. Imported by `runtime`, `recipe`, `compiler`, `train` and `cli`; imports `bundle` and what lies below.
"""
