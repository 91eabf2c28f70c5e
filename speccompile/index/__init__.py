"""An index over a corpus, from which drafts are retrieved (REST, He et al. 2023): every place where some tokens stand.

files      the folder of an index: header, tokens and suffix arrays, mapped into memory
corpus     texts in pieces, from any place on; `tokenizers` turns them into tokens
build      texts -> the folder, in steps that an interrupted build need not do again
suffixes   tokens -> their suffix array
search     where the longest end of a text occurs
votes      what followed there, counted -> a chain or a tree of drafts
retrieval  both as a proposer of drafts

No torch: `build` runs where a corpus lies, `retrieval` where a bundle runs. What a search finds is the same on every
machine: counts are integers, and ties have rules.
"""
