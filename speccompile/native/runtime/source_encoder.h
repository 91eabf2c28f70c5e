// Encoding of a sequence's source before its first run in a slot (runtime/rounds/source_encoder.py).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine.h"
#include "sources.h"

namespace spc {

// Runs the graphs that encode sources, and writes what a round needs to know of them.
class SourceEncoder {
 public:
  // Return the encoder of a bundle, null without one.
  static std::unique_ptr<SourceEncoder> of(Engine& engine, const Manifest& manifest);
  SourceEncoder(Engine& engine, const Manifest& manifest);

  // Encode the source of a slot's sequence, unless the slot holds it. Throws Error(kCancelled) if stopped, Error(kEngine).
  void encode(int64_t slot, const Source& source);
  // Forget the sources of all slots: the next sequences are encoded, even those with the same source.
  void forget() { std::fill(held_.begin(), held_.end(), ""); }
  // Note that slot `slot` has got the rows of slot `source`.
  void copy(int64_t source, int64_t slot);
  // Return the key of the source whose rows a slot holds, "" for an unknown one.
  const std::string& held(int64_t slot) const { return held_[static_cast<size_t>(slot)]; }

 private:
  void write_tokens(int64_t slot, const TokenIds& tokens);
  Widths write(int64_t slot, const Source& source);

  Engine& engine_;
  const int64_t batch_;
  std::vector<std::string> names_;  // of the graphs
  int64_t* length_;                 // [B]: rows of the source that count
  int64_t *tokens_ = nullptr, rows_ = 0;  // [B, rows]: for lookups; null where nothing looks up
  std::vector<std::string> held_;
};

// Return some source of a bundle that takes them.
SourcePtr example_source(const Manifest& manifest);
// Encode some source in every slot, for runs of the round that measure or compare something.
void encode_example(Engine& engine, const Manifest& manifest);

}  // namespace spc
