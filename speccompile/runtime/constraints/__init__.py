"""Constraints of new tokens: a JSON schema, a regular expression, a grammar, or a choice of texts.

grammar           compiles a constraint to a grammar of llguidance; refuses what is invalid or not supported
matcher           state of a sequence in its grammar: allowed tokens, forced tokens, and whether the text is complete
fitted_tokenizer  the tokenizer without holes in its ids, and without the tokens that the model has no row for
"""

from speccompile.runtime.constraints.grammar import KINDS, Constraint, ConstraintOption, GrammarCompiler
from speccompile.runtime.constraints.matcher import Matcher

__all__ = ["KINDS", "Constraint", "ConstraintOption", "GrammarCompiler", "Matcher"]
