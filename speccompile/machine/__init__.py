"""The machine that this runs on: processors and memory, what its environment says, errors that mean that it has no room
left, and where the parts of a piece of work are done.

In: nothing, or an exception that a library raised. Out: numbers, and plain words for errors.
Imported by every room; imports the ground alone (errors, progress).
"""
