// Check on this machine that a token's logits do not depend on the width of its window (runtime/window_invariance.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine.h"

namespace spc {

// Result of the check. widths: window widths that were compared with windows of one token; differing: those with different
// logits; largest: largest difference of two logits, relative to the largest logit.
struct WindowInvariance {
  std::vector<int64_t> widths, differing;
  double largest = 0;

  bool exact() const { return differing.empty(); }
  std::string reason() const;
  Json to_json() const;
};

// Run the target over the same tokens in windows of every width that decoding uses, after the same committed tokens.
//
// In a chain, position i must have the logits of token i. In a tree all drafts are the same token, so a node's logits must be
// those after as many such tokens as its depth.
WindowInvariance compare_windows(Engine& engine, const Manifest& manifest);

// Give all inputs beside the tokens values that every graph can take.
void write_neutral_inputs(Engine& engine, const Manifest& manifest);

// Return the key of everything that decides which kernels a CPU engine runs on. threads: of the engine; onnxruntime: its
// version.
Json engine_key(const std::string& folder, const EngineEntry& entry, std::optional<int> threads, const std::string& onnxruntime);

// Return the cached result on this machine, or nullopt. key: the engine's `engine_key`.
std::optional<WindowInvariance> cached_invariance(const Json& key);

// Return the cached result on this machine, or run the check and cache it. Warn if the engine is not exact here. key: the
// engine's `engine_key`.
WindowInvariance check_invariance(const Json& key, const EngineEntry& entry, SharedEngine& program, const Manifest& manifest);

}  // namespace spc
