"""What new tokens may say: a JSON schema, a regular expression, a grammar, one of some texts.

grammar   what a user writes -> a grammar of llguidance, refused where it is none or asks for what is not supported
matcher   how far a row's new tokens are in its grammar: which may follow, which must, and whether it is complete
"""

from speccompile.runtime.constraints.grammar import KINDS, Constraint, ConstraintOption, GrammarCompiler
from speccompile.runtime.constraints.matcher import Matcher

__all__ = ["KINDS", "Constraint", "ConstraintOption", "GrammarCompiler", "Matcher"]
