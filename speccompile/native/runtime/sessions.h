// Sessions of ONNX Runtime: options, errors, and shared CPU sessions of equal graphs.
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

// Return the options of every session. entries: further settings of ONNX Runtime, with names that begin with "session.".
//
// threads: always set, because ONNX Runtime's default is one per core of the machine, bound to it, regardless of the
// affinity mask and the control groups of the process.
SessionOptions session_options(const Ort& library, int threads, const std::vector<std::pair<std::string, std::string>>& entries = {});

// Return the session of a graph of the bundle in `folder`. Equal files and threads share a session while it has an owner: it
// is stateless and runs concurrently. verify: check packed weights in the cache against their hashes. Throws Error(kEngine)
// if ONNX Runtime rejects the graph.
SharedSession shared_session(const Ort& library, const std::string& folder, const std::string& file, int threads, bool verify);

// Return the session of `open`. Throws Error(kEngine) if ONNX Runtime rejects the graph in `file`.
SharedSession create_session(const Ort& library, const std::string& file, const std::function<OrtSession*()>& open);

// Return the code path of the kernels in use, "none" for ONNX Runtime's own. Throws Error(kUsage) if $SPECCOMPILE_KERNELS
// names a path that this machine cannot run.
std::string kernels_in_use();

}  // namespace spc
