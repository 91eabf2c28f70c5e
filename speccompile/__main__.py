"""`python -m speccompile`: the command line, for launchers that start modules."""

from speccompile.cli import main

main()
