// Regular expressions as Rust's regex-syntax reads them, without lookaround assertions, which llguidance lacks as well.
#pragma once

#include <string>
#include <string_view>

#include "expressions.h"

namespace spc::constraints {

// Reason why a constraint is invalid, or has something that this engine lacks.
struct Refused {
  std::string why;
};

// Return the expression of a pattern, which matches the whole text. Throws Refused and TooComplex.
Expr parse_regex(Expressions& expressions, std::string_view source);
// Return the expression of a JSON schema's pattern, which matches somewhere in a text, with \d and \w of ASCII.
Expr parse_search(Expressions& expressions, std::string_view source);

}  // namespace spc::constraints
