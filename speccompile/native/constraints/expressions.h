// Regular expressions over bytes, and their derivatives: what may follow a byte. Equal expressions have one number.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../text/unicode.h"

namespace spc::constraints {

using Expr = uint32_t;
using Bytes = std::bitset<256>;

inline constexpr Expr kNothing = 0, kEmpty = 1;  // no text at all; the empty text
inline constexpr uint32_t kUnlimited = UINT32_MAX;

// A constraint needs more work or memory than it may have.
struct TooComplex {};

class Expressions {
 public:
  Expressions();

  Expr bytes(const Bytes& set);
  Expr literal(std::string_view text);
  // One character of the set, as UTF-8.
  Expr character(const unicode::Set& set);
  // Any text: of characters, and of bytes.
  Expr any_text();
  Expr everything() { return negated(kNothing); }
  Expr sequence(Expr first, Expr second);
  Expr either(std::vector<Expr> options);
  Expr both(std::vector<Expr> parts);
  Expr negated(Expr expression);
  // most: kUnlimited for no limit.
  Expr repeated(Expr expression, uint32_t least, uint32_t most);
  // Decimal numbers without a sign that are multiples of coefficient * 10 ** -digits.
  Expr multiple(uint32_t coefficient, uint32_t digits);
  // The inside of a JSON string with a text that the expression matches (derivre's JsonQuote).
  Expr quoted(Expr expression);

  bool is_nullable(Expr expression) const { return nodes_[expression].nullable; }
  // Return the expression of what may follow a byte. Throws TooComplex.
  Expr derive(Expr expression, uint8_t byte);
  // Return whether no text matches. Throws TooComplex.
  bool is_nothing(Expr expression);
  // Return whether the bytes match. Throws TooComplex.
  bool matches(Expr expression, std::string_view bytes);

 private:
  enum class Kind : uint8_t { kNothing, kEmpty, kBytes, kSequence, kRepeat, kEither, kBoth, kNegated, kRemainder };
  // args: parts; for kRepeat the expression, the least and the most; for kRemainder divisor, remainder, digits, whether behind the
  // point; for kBytes the index of the set.
  struct Node {
    Kind kind;
    bool nullable, positive;  // positive: neither kBoth nor kNegated is inside, so something matches
    std::vector<uint32_t> args;
  };

  // Counts the depth of a recursion. Throws TooComplex.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) {
      if (depth_ >= kDeepest) throw TooComplex();
      ++depth_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --depth_; }

   private:
    static constexpr int kDeepest = 1'000;  // of expressions in each other, on the stack
    int& depth_;
  };

  Expr made(Kind kind, std::vector<uint32_t> args, bool nullable, bool positive);
  Expr remainder(uint32_t divisor, uint32_t left, uint32_t digits, bool is_fraction);
  Expr derived(const Node& node, uint8_t byte);
  Expr derive_remainder(const std::vector<uint32_t>& args, uint8_t byte);
  std::vector<Expr> flattened(Kind kind, const std::vector<Expr>& parts) const;
  Expr quoted_bytes(Bytes set);
  Expr quoted_part(Expr expression);

  std::vector<Node> nodes_;
  std::vector<Bytes> sets_;
  std::unordered_map<std::string, Expr> known_;
  std::unordered_map<std::string, uint32_t> known_sets_;
  std::unordered_map<uint64_t, Expr> derivatives_;
  std::unordered_map<Expr, bool> nothing_;
  std::unordered_map<Expr, Expr> quotes_;
  int depth_ = 0;
};

}  // namespace spc::constraints
