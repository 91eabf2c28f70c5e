"""Data: what lies in files -> tokens and which of them are learnt -> batches by seed and step.

rows        what lies in the files that the recipe names: lines, rows of tables, pieces of texts, each with its place
documents   one of three kinds of each: prompts, conversations, text, checked
tokens      the tokens of a document, and which are learnt
shards      texts in a table that is mapped into memory
kept        folders that are written once for what they depend on
order       which texts a step has: epochs, and buckets of like lengths
corpus      texts and batches of them
prepare     all of it: `prepare` and `prepare_prompts`
shown       one text as people read it
features    what the target makes of every text, on the disk
"""
