"""speccompile: compile a target LLM and its drafter into graphs that draft, verify, accept and commit by themselves."""

__version__ = "0.1.0"
