// Regular expressions: the parsed tree, and the program that the matcher runs.
#pragma once

#include <bitset>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "pattern.h"
#include "unicode.h"

namespace spc {

inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

// Throw PatternError.
[[noreturn]] inline void broken(const std::string& what) { throw PatternError{PatternError::kBroken, what}; }
[[noreturn]] inline void unknown(const std::string& what) { throw PatternError{PatternError::kUnknown, what}; }

enum class Place { kLineBegin, kLineEnd, kTextBegin, kTextEnd, kTextEndOrNewline, kWordBoundary, kNoWordBoundary };
enum class Taking { kGreedy, kLazy, kPossessive };

struct Node {
  enum class Kind { kEmpty, kCharacter, kSet, kSequence, kChoice, kRepeat, kPlace, kLook, kAtomic };

  Kind kind = Kind::kEmpty;
  std::vector<Node> parts;
  uint32_t code = 0;       // kCharacter
  bool caseless = false;   // kCharacter
  unicode::Set set;        // kSet
  uint32_t least = 0, most = 0;  // kRepeat
  Taking taking = Taking::kGreedy;
  Place place = Place::kLineBegin;
  bool behind = false, negative = false;  // kLook
};

// Throws PatternError. No node is deeper than kDepth.
inline constexpr int kDepth = 200;
Node parse_pattern(std::string_view source);

// The characters between [ and ], from `at` behind the [, which moves behind the ].
unicode::Set parse_brackets(std::string_view source, size_t& at, bool caseless);
// \p{..} and \P{..}, from `at` behind the letter.
unicode::Set parse_property(std::string_view source, size_t& at, bool negative);
// Return the set that POSIX brackets and \p{..} give one name; empty for another name.
unicode::Set posix_set(const std::string& name);
// \s, \d, \w, \h and their opposites; an empty set for another letter. In brackets \w lacks six characters.
unicode::Set escaped_set(char letter, bool in_brackets);
// A character after a backslash, from `at` behind that.
uint32_t parse_escape(std::string_view source, size_t& at);

// Return the set with all cases of its characters, as (?i) reads it.
unicode::Set with_cases(const unicode::Set& set);
// Return whether under (?i) a character of a set equals several characters.
bool folds_to_several(const unicode::Set& set);
// Return whether under (?i) a character of a text equals several, or several of them equal one.
bool folds_to_several(const std::vector<uint32_t>& text);

// A program for the matcher.
struct Step {
  enum class Kind : uint8_t {
    kText,        // the bytes texts[a]
    kSet,         // one character of sets[a]
    kRun,         // `least` to `most` characters of sets[a]
    kSplit,       // at a, or where that fails at b; firsts[c] and firsts[c + 1] say which bytes begin either
    kJump,        // at a
    kPlace,       // where Place(a) is
    kBack,        // a characters back
    kLook,        // what follows up to kDone matches here (b: does not); then at a
    kAtomic,      // the same, and goes on behind it
    kEnterLoop,   // remember where a round begins, in slots[a]
    kLeaveIfSame, // a round that took nothing, by slots[a], is the last: at b
    kDone,
  };
  Kind kind;
  Taking taking = Taking::kGreedy;
  uint32_t a = 0, b = 0, c = 0;
  uint32_t least = 0, most = 0;
};

// Bytes that can come next, and 256 for the end of the text.
using First = std::bitset<257>;

struct SharedEngine {
  std::vector<Step> steps;
  std::vector<std::string> texts;
  std::vector<unicode::Set> sets;
  std::vector<First> firsts;
  uint32_t slots = 0;
  First first;
  unicode::Set word;  // for word boundaries
};

// Throws PatternError.
SharedEngine make_program(const Node& root);

}  // namespace spc
