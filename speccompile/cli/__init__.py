"""Command line. Importing it imports click and nothing heavier: a command imports its packages when it runs.

In: arguments. Out: results on stdout, progress and errors on stderr, an exit code.
Imported by no other package; imports every package.
"""

from speccompile.cli.main import main

__all__ = ["main"]
