// Comparison of a graph's file with what the manifest says of its inputs and outputs.
#pragma once

#include <string>

#include "../contract.h"
#include "sessions.h"

namespace spc {

// Throws Error(kBundle) where the graph in `file` has other inputs or outputs than the manifest says.
void check_signature(const Ort& library, const SharedSession& session, const Graph& graph, const std::string& file);

}  // namespace spc
