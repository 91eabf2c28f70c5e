"""Every way of drafting that a recipe's models allow, beside autoregression, on the same prompts in one run.

ways     which: a table, or a user's file
run      builds them and has them measured, as far as that was not done before
passes   one run over all questions, in a process of its own, which imports nothing that a bundle does not need
store    what was measured, on the disk
report, table, page   what it says
"""
