"""The machine that this runs on: processors and memory, environment variables, out-of-memory and disk-full errors,
executors of tasks, and child processes with limits.

In: nothing, or an exception that a library raised. Out: numbers, and plain words for errors.
Imported by every room; imports the ground alone (errors, progress).
"""
