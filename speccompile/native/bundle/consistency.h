// Consistency of a manifest: its numbers are those of its plan and of its graphs, its graphs those of the contract, and its
// engines' graphs those of the bundle (speccompile/bundle/consistency.py). Without it an edited manifest runs, and gives other
// tokens.
#pragma once

#include <string>

#include "manifest.h"

namespace spc {

// Throws Error(kBundle) naming `file`, the field and both values where a manifest contradicts itself.
void check_consistency(const Manifest& manifest, const std::string& file);

}  // namespace spc
