"""Command line. Importing it imports click and nothing heavier: a command imports its packages when it runs.

In: arguments. Out: results on stdout, progress and errors on stderr, an exit code.
Imported by no other package; imports every package.
"""

import sys

try:
    from speccompile.cli.main import main
except KeyboardInterrupt:  # `exit_codes` handles those after the imports, which take a second where nothing is cached
    sys.stderr.write("\ninterrupted; nothing was kept\n")
    sys.exit(130)

__all__ = ["main"]
