// Formats of texts in JSON schemas.
#pragma once

#include <string>

namespace spc::constraints {

// Return the regular expression of a format, null for one that is not known.
const char* format_regex(const std::string& name);

}  // namespace spc::constraints
