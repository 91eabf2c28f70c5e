"""transformers' own forward over the whole text, of every model."""

from speccompile.families.model.reference import teachers

__all__ = ["teachers"]
