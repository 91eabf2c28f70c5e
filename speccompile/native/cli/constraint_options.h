// Options for constraints on new tokens (cli/constraint_options.py).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "../json.h"
#include "options.h"

namespace spc::cli {

// Return the kind and the text of the constraint that the options ask for; none without one. Throws Error(kUsage) for several, and
// for a file that cannot be read.
std::optional<std::pair<std::string, Json>> asked_constraint(const Arguments& given);

}  // namespace spc::cli
