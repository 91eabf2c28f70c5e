"""transformers' own forward over the whole text, of every model."""

from speccompile.drafters.model.reference import teachers

__all__ = ["teachers"]
