"""What was decided, as frozen data: of a build (`plan`), of a training, of a head and its layers; and the one form that
complaints about a recipe take (`refusal`).

In: values. Out: the same, as JSON for people. No file is read here, and no torch imported.
Imported by `drafters`, `recipe`, `compiler`, `measure`, `train` and `cli`; imports the ground alone.
"""
