"""The loop: prompts are read in chunks, rounds draft, verify, accept and commit, until every row has ended.

loop      one call, `slots` what a scheduler does row by row, `rounds` the graphs and their buffers
drafting  who drafts a round and how much: `pace` decides by `speed`; `proposals` are a host's
sampling  settings and random numbers as inputs of the graphs; `masks` which tokens are allowed
kept      what a drafter remembers from one generation to the next
"""
