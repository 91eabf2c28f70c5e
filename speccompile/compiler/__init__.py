"""From a plan to a bundle: checkpoints and weights, the round as torch modules, its graphs, the proof, engines.

In: a `plan.Plan`. Out: a bundle folder, proven, or one error.
The rooms in the order in which they import each other, the lowest first: `checkpoints`, `engines`, `weights`, `step`,
`models`, `lower`, `prove`, `diagnose`, `build`. Drafters are made of `step`, and `build` finds them by their kind.
Imported by `measure`, `train` and `cli`; `recipe` reads facts by `checkpoints`. The runtime's side never imports it.
"""
