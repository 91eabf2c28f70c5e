// Syntax tree of a regular expression.
#pragma once

#include <string_view>
#include <vector>

#include "../text/unicode.h"
#include "expressions.h"

namespace spc::constraints {

struct RegexNode {
  enum class Kind { kEmpty, kSet, kBegin, kEnd, kSequence, kChoice, kRepeat };

  Kind kind = Kind::kEmpty;
  std::vector<RegexNode> parts = {};
  unicode::Set set = {};
  uint32_t least = 0, most = 0;
};

// Return the tree of a pattern, whose nodes are not deeper than 100. ascii: \d and \w are of ASCII, as in JSON schemas. Throws
// Refused.
RegexNode read_regex_tree(std::string_view source, bool ascii);

// Reader of escapes and classes, which stands at `at_` in the source.
class RegexClasses {
 public:
  RegexClasses(std::string_view source, bool ascii) : source_(source), ascii_(ascii) {}

 protected:
  bool more() const { return at_ < source_.size(); }
  bool next(std::string_view text);
  uint32_t character();
  // Return the class behind [.
  unicode::Set brackets(bool caseless, int depth);
  // Return the set of a backslash and its letter: \d, \p{..}; empty for others.
  unicode::Set escaped_set();
  // Return the character of an escape, behind the backslash.
  uint32_t escaped_character();

  const std::string_view source_;
  const bool ascii_;
  size_t at_ = 0;

 private:
  unicode::Set property(bool negative);
  unicode::Set posix();
  unicode::Set items(bool caseless, int depth);
  uint32_t hexadecimal(size_t digits);
};

}  // namespace spc::constraints
