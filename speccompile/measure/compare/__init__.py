"""Compare every drafting method that a recipe's models allow with autoregressive decoding, on the same prompts.

methods  the compared methods: a default table, or a user's file
run      builds and measures the methods, without those that are already done
passes   one run over all questions in a separate process, which imports only what a bundle needs
store    the measurements on the disk
report, table, page   the results
"""
