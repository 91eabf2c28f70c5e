"""Reference: transformers' forward of every draft model over the whole text."""

from speccompile.drafters.model.reference import teachers

__all__ = ["teachers"]
