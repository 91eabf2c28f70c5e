"""The command line. Importing it imports click and nothing heavier: commands import their rooms when they run.

In: arguments. Out: results on stdout, progress and errors on stderr, an exit code.
Imported by nobody; imports every room.
"""

from speccompile.cli.main import main

__all__ = ["main"]
