// The line about a finished generation (speccompile/cli/generation_output.py).
#pragma once

#include <string>

#include "../json.h"

namespace spc::cli {

// Return tokens, rounds, speed, and why it ended. result: the object of `generate --json`, with all fields of a generation.
std::string summary(const Json& result);

}  // namespace spc::cli
