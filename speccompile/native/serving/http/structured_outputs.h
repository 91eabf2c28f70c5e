// Structured outputs: the constraint that a request asks for (serving/http/structured_outputs.py).
#pragma once

#include <memory>
#include <string>

#include "../../constraints/constraint.h"
#include "../../runtime/bundle.h"

namespace spc::http {

using SharedConstraint = std::shared_ptr<const constraints::Constraint>;

// Return the constraint that a request's checked fields ask for, or null. most: bytes that it may have. Throws RequestError for one that this bundle cannot
// impose: an answer that breaks the requested form would be silently wrong.
SharedConstraint constraint_of(const Json& fields, const Bundle& bundle, int64_t most);
// Compile the constraint in a field. Throws RequestError for an invalid one.
SharedConstraint compile_constraint(const Bundle& bundle, const std::string& field, const std::string& kind, const Json& text, int64_t most);
// Throw RequestError for a field if the bundle takes no constraints.
void check_constraints(const Bundle& bundle, const std::string& field);

}  // namespace spc::http
