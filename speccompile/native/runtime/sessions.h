// Sessions of ONNX Runtime: their options, what it refuses, and on a CPU one session for all who run the same graph.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ort.h"

namespace spc {

using SessionOptions = std::shared_ptr<OrtSessionOptions>;
using SharedSession = std::shared_ptr<OrtSession>;

// Options that every session has. entries: more of ONNX Runtime's settings, whose names begin with "session.".
//
// threads: asked for, or else ONNX Runtime takes as many as the machine has cores and binds them to those, whatever the
// affinity mask and the control groups of the process say.
SessionOptions session_options(const Ort& library, int threads, const std::vector<std::pair<std::string, std::string>>& entries = {});

// The session of a graph of the bundle in `folder`. While somebody has it, equal files and threads give the same: it has no
// state of its own and runs for several at once. verify: compare packed weights that are kept on this machine with their
// hashes. Throws Error(kEngine) when ONNX Runtime does not take the graph.
SharedSession shared_session(const Ort& library, const std::string& folder, const std::string& file, int threads, bool verify);

// What `open` makes; throws Error(kEngine) when ONNX Runtime does not take the graph in `file`.
SharedSession refusable(const Ort& library, const std::string& file, const std::function<OrtSession*()>& open);

// The path of the kernels that graphs run on, "none" for ONNX Runtime's own. Throws Error(kUsage) when $SPECCOMPILE_KERNELS
// names one that this machine cannot run.
std::string kernels_in_use();

}  // namespace spc
