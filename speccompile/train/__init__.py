"""Train drafters: the same modules are trained and compiled, and checkpoints are evaluated in the compiled loop.

In: the plan of a recipe's section `train` (`plan.training_plan`), and prompts, texts or responses (`data`, `answers`).
Out: a folder that a recipe names as its drafter, with curves and evaluations (`evaluate`).
`teacher` runs the target on a batch, `objective` computes the loss, `loop` takes the steps, `run` combines them.
The code for one kind of drafter lies in `drafters/<kind>/training.py`.
Imported by `cli`; imports everything below.
"""
