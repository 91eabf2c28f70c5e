// Tokens that a transcript without times may have (runtime/audio/rules.py).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../bundle/manifest.h"

namespace spc::audio {

// Masks [V] of the tokens that may begin a text, and of those that may follow. Never changes.
class TokenRules {
 public:
  // Return the rules of a bundle whose target hears, null for others.
  static std::shared_ptr<const TokenRules> of(const Manifest& manifest);

  // Write the tokens that may follow every node of a round into bool [rows, V]. is_empty: the text has no token before the round.
  void write(uint8_t* allowed, int64_t rows, bool is_empty) const;

 private:
  std::vector<uint8_t> first_, later_;
};

}  // namespace spc::audio
