// A tokenizer's model that finds the tokens of one piece by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text.h"

namespace spc {

// Thrown by `encode` if the file names an unknown token that is not in its vocabulary.
struct NoUnknownToken {
  std::string name;
};

class TokenFinder {
 public:
  virtual ~TokenFinder() = default;
  virtual std::optional<uint32_t> id(std::string_view token) const = 0;
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  // The token ids of one piece, behind those that are there. Throws NoUnknownToken.
  virtual void encode(std::string_view piece, TokenIds& ids) const = 0;
};

}  // namespace spc
