// manifest.json: what a bundle is, in the terms of the contract (speccompile/bundle/manifest.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../contract.h"
#include "../json.h"
#include "source_section.h"

namespace spc {

using Names = std::vector<std::pair<std::string, std::string>>;  // graph -> path, or part -> word, in the file's order

// One engine of the bundle. In its graphs, as in the manifest's own, the file's size "batch" is replaced by the number of batch
// slots: every run reads and writes all of them. build: null but for the TensorRT backends.
struct EngineEntry {
  std::string name, backend, provider;
  Names files, precision;
  std::vector<Graph> graphs;
  std::string compute_capability;  // "" where there is none
  Json build;

  // Why the engine is not built yet; "" when it is.
  const std::string& deferred() const { return build["deferred"].text(); }
  bool has(const std::string& graph) const;
  const std::string& file(const std::string& graph) const;  // of a graph that it has
};

struct Manifest {
  std::string speccompile, name, decoding, method, tree;
  bool exact = true, sample = false, tokenizer = false;
  int64_t batch_size = 0, max_length = 0, prefill_chunk = 0, tokens = 0, depth = 0, catch_up = 0, vocabulary_size = 0;
  std::vector<int64_t> eos_token_ids;
  std::vector<Graph> graphs;
  std::vector<EngineEntry> engines;
  std::vector<std::pair<std::string, int64_t>> rings;  // cache that is a ring -> number of its latest positions that are read
  std::optional<SourceSection> source;                  // of a target with an encoder
  Json json;                                           // the file's content

  // Throws Error(kBundle) naming `file` and the field that is missing, unknown or wrong.
  static Manifest from_json(const Json& data, const std::string& file);
  bool is_chain() const { return tree == tree::kChain; }
  // Tokens of the widest run.
  int64_t widest() const { return prefill_chunk > tokens ? prefill_chunk : tokens + 1; }
  // The number of latest positions that are read of a cache that is a ring, 0 of others.
  int64_t ring_window(const std::string& buffer) const;
};

}  // namespace spc
