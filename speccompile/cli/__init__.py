"""The command line. Importing it imports click and nothing heavier."""

from speccompile.cli.main import main

__all__ = ["main"]
