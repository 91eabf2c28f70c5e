"""Constraints of new tokens: a JSON schema, a regular expression, a grammar, or a choice of texts.

constraint        constraints of a bundle, each compiled once, within limits
limits            limits of compiling one
trial             child processes that compile a constraint first, and that the kernel ends at the limits
child             their program
grammar           compiles a constraint to a grammar of llguidance; refuses invalid and unsupported ones
matcher           state of a sequence in its grammar: allowed tokens, forced tokens, and whether the text is complete
fitted_tokenizer  the tokenizer without holes in its ids, and without the tokens that the model has no row for
"""

from speccompile.runtime.constraints.constraint import Constraint, ConstraintOption, GrammarCompiler
from speccompile.runtime.constraints.grammar import KINDS
from speccompile.runtime.constraints.limits import CompileLimits
from speccompile.runtime.constraints.matcher import Matcher

__all__ = ["KINDS", "CompileLimits", "Constraint", "ConstraintOption", "GrammarCompiler", "Matcher"]
