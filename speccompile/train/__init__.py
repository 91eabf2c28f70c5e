"""Training of drafters: the very modules that are compiled learn, and a checkpoint is judged by the compiled loop.

In: a recipe's section `train`, decided (`plan.training_plan`), and prompts, texts or answers (`data`, `answers`).
Out: a folder that a recipe names as its drafter, with curves and what was judged on the way (`evaluate`).
`teacher` says what the target makes of a batch, `objective` what a draft is worth, `loop` takes steps, `run` does all.
What one kind of drafter needs to learn stands in `drafters/<kind>/training.py`.
Imported by `cli`; imports everything below.
"""
