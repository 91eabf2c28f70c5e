// Grammars in the Lark form of llguidance: rules, TOKENS, %ignore, %import common, %json and special tokens.
#pragma once

#include <functional>
#include <string>

#include "grammar.h"

namespace spc::constraints {

// Add a grammar as the outermost part, and return its start. special: returns the special token with a text, -1 without one. Throws
// Refused and TooComplex.
Symbol add_lark(Grammar& grammar, const std::string& source, const std::function<int64_t(const std::string&)>& special);

}  // namespace spc::constraints
