"""Decisions as frozen data: plans of a build (`plan`) and a training (`training_plan`), descriptions of a head and its
layers; and the form of errors about a recipe (`recipe_source`).

In: values. Out: the same values, also as readable JSON. Reads no files and imports no torch.
Imported by `drafters`, `recipe`, `compiler`, `measure`, `train` and `cli`; imports the ground alone.
"""
