"""The machine that this runs on: processors and memory, environment variables, out-of-memory and disk-full errors,
executors of tasks, child processes with limits, and files
as others write them.

In: nothing, or an exception that a library raised. Out: numbers, and plain words for errors.
Imported by every room; imports the ground alone (errors, progress).
"""
