// Checks for the part of JSON Schema that describes requests (serving/http/schema.py).
#pragma once

#include <optional>
#include <string>

#include "../../json.h"

namespace spc::http {

// Violation of a schema: the field, the received value (null where it is missing), and the expected one.
struct Violation {
  std::string where;
  const Json* received;
  std::string expected;
};

// Return the first violation of a schema, nullopt without one. Both outlive the result.
std::optional<Violation> first_problem(const Json& value, const Json& schema, const std::string& where = "");
// Throw RequestError, naming the field, unless the value matches the schema.
void check(const Json& value, const Json& schema);
// Return the beginning of a value's JSON, for a message.
std::string shown(const Json& value);

}  // namespace spc::http
