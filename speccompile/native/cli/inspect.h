// Contents of a bundle, in lines (speccompile/cli/inspect.py).
#pragma once

#include <string>

#include "../json.h"

namespace spc::cli {

// The bytes of a token in all caches of the first engine of a manifest, and the longest text whose caches fit so many gigabytes.
Json context_of(const Json& manifest, double gigabytes);
// Return the object of --json as lines for people: a row for each value.
std::string describe(const Json& object);

}  // namespace spc::cli
