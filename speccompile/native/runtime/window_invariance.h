// Whether a token's logits depend on the window that it rides in, found out where the bundle runs (runtime/exactness.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine.h"

namespace spc {

// widths: of the windows that were compared with windows of one; differing: those whose logits were others; largest:
// difference of two logits, as a part of the largest logit.
struct WindowInvariance {
  std::vector<int64_t> widths, differing;
  double largest = 0;

  bool exact() const { return differing.empty(); }
  std::string reason() const;
  Json to_json() const;
};

// Give the target the same tokens in windows of every width that decoding uses, from the same committed ones.
//
// A chain's row i must have the logits of token i. In a tree all drafts are one token, so a node's logits must be those behind
// some number of them: how deep it stands.
WindowInvariance compare_windows(Engine& engine, const Manifest& manifest);

// What was found on this machine before; nothing where nothing was. threads: of the engine; onnxruntime: its version.
std::optional<WindowInvariance> cached_invariance(const std::string& folder, const EngineEntry& entry, std::optional<int> threads,
                                         const std::string& onnxruntime);

// What was found on this machine before, or is found now and kept. onnxruntime: its version. Says so where an engine is not
// exact here.
WindowInvariance check_invariance(const std::string& folder, const EngineEntry& entry, SharedEngine& program, const Manifest& manifest,
                         const std::string& onnxruntime);

}  // namespace spc
