// Regular expressions, as Oniguruma reads and matches them for the Python package tokenizers.
//
// By hand (1,300 lines), because Debian 12 has no static library of Oniguruma, and its 6.9.8 has older tables than the one inside tokenizers: \w
// is 135,206 characters instead of 144,671, so that texts would be cut in other places. PCRE2 has other tables and another syntax.
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
