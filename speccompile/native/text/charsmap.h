// "Precompiled" normalizer of a tokenizer.json: SentencePiece's map of characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normalizers.h"

namespace spc {

// Replaces grapheme clusters of fewer than six bytes, or else characters, as the package tokenizers does: one that begins with a
// key of the map becomes what the shortest such key stands for.
class Precompiled : public Normalizer {
 public:
  // charsmap: in base64. Throws InvalidTokenizer.
  explicit Precompiled(const std::string& charsmap);
  NormalizedString apply(const NormalizedString& line) const override;

 private:
  std::optional<std::string_view> found(std::string_view part) const;
  size_t cluster_end(std::string_view text, size_t at) const;

  std::vector<uint32_t> units_;  // a double array (Aoe 1989), as Darts-clone writes it
  std::string texts_;            // with a zero behind each
  unicode::Set extends_, prepends_, controls_;
};

}  // namespace spc
