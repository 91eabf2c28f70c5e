// Regular expressions, as Oniguruma reads and matches them for the Python package tokenizers.
//
// By hand, because the Oniguruma that Debian 12 has would cut texts elsewhere: its tables are older than those inside tokenizers.
// Figures: docs/explanation/decisions/0009-formats-by-hand.md.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.h"

namespace spc {

// The pattern is none, or has something that this engine lacks.
struct PatternError {
  enum Kind { kBroken, kUnknown } kind;
  std::string what;
};

// A text would take too long to match, or too much memory: more than some seconds, which no tokenizer's own text does.
struct PatternLimit {};

struct Match {
  size_t begin, end;
};

struct SharedEngine;

class Pattern {
 public:
  // Throws PatternError.
  explicit Pattern(std::string_view source);
  // The pattern that matches this very text.
  static Pattern literal(std::string_view text);

  // All matches from left to right, an empty one not right behind another. The text must be UTF-8. Throws PatternLimit.
  std::vector<Match> find_all(std::string_view text) const;

 private:
  Pattern() = default;

  std::shared_ptr<const SharedEngine> program_;
  std::string literal_;  // where there is no program
};

}  // namespace spc
