// Contents of a bundle, in lines (speccompile/cli/inspect.py).
#pragma once

#include <string>

#include "../json.h"

namespace spc::cli {

// Return the bytes of a buffer in the manifest: a number, or a product if a width varies from run to run. Throws Error(kBundle) for a
// dtype of unknown size. rows: of the batch, which all lie in memory.
Json size_in_bytes(const Json& buffer, int64_t rows);
// Describe the caches of the first engine of a manifest: bytes of a token, dtypes if they are quantized, rings, and the longest text
// whose caches fit into a number of gigabytes.
std::string describe_caches(const Json& manifest, double gigabytes);
// Return the bytes of a token in all caches of that engine, and that longest text.
Json context_of(const Json& manifest, double gigabytes);
// Return the lines that people read, from the object of --json.
std::string describe(const Json& object, double gigabytes);

}  // namespace spc::cli
