// The grammar of the JSON texts that a schema allows (llguidance's json/compiler.rs).
#pragma once

#include "../json.h"
#include "grammar.h"

namespace spc::constraints {

// Add a schema's grammar, as a part of its own. blank: expression of what may stand between its lexemes. Throws Refused and
// TooComplex.
Symbol add_schema(Grammar& grammar, const Json& schema, Expr blank);

}  // namespace spc::constraints
