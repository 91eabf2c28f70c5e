// Characters of expressions: as UTF-8, and as JSON strings write them.
#include <algorithm>
#include <array>
#include <map>

#include "expressions.h"

namespace spc::constraints {
namespace {

using unicode::Set;

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

Bytes range(uint32_t first, uint32_t last) {
  Bytes found;
  for (uint32_t byte = first; byte <= last; ++byte) found.set(byte);
  return found;
}

// A letter behind a backslash for a byte, 0 if it has none.
char short_escape(int byte) {
  switch (byte) {
    case '\\': return '\\';
    case '"': return '"';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

// Sequences of ranges of bytes, which UTF-8 has for ranges of characters: of those with equal ends, one has all first bytes.
class Ranges {
 public:
  explicit Ranges(Expressions& expressions) : expressions_(expressions) {}

  // first, last: of characters of `size` bytes, all but the first of whose bytes are `size - 1` groups of six bits.
  Expr make(uint32_t first, uint32_t last, int size) {
    if (size == 1) return expressions_.bytes(range(0x80 | (first & 0x3F), 0x80 | (last & 0x3F)));
    const uint32_t bits = 6 * static_cast<uint32_t>(size - 1), low = (1u << bits) - 1;
    std::vector<Expr> found;
    for (uint32_t begin = first; begin <= last;) {
      uint32_t end = std::min(last, begin | low);
      if ((begin & low) == 0 && (last - begin) > low) end = ((last + 1) & ~low) - 1;  // several whole groups
      const Expr tail = make(begin & low, end & low, size - 1);
      found.push_back(expressions_.sequence(expressions_.bytes(range(0x80 | (begin >> bits & 0x3F), 0x80 | (end >> bits & 0x3F))), tail));
      begin = end + 1;
    }
    return expressions_.either(found);
  }

 private:
  Expressions& expressions_;
};

}  // namespace

Expr Expressions::character(const Set& set) {
  Bytes single;
  std::map<Expr, Bytes> leads;  // what follows -> the first bytes
  Ranges ranges(*this);
  const auto add = [&](uint32_t first, uint32_t last) {
    for (uint32_t code = first; code <= std::min(last, 0x7Fu); ++code) single.set(code);
    constexpr std::array<std::array<uint32_t, 3>, 3> kSizes = {{{0x80, 0x7FF, 0xC0}, {0x800, 0xFFFF, 0xE0}, {0x10000, unicode::kLast, 0xF0}}};
    for (uint32_t size = 1; size <= 3; ++size) {
      const auto [least, most, mark] = kSizes[size - 1];
      const uint32_t bits = 6 * size, low = (1u << bits) - 1;
      for (uint32_t begin = std::max(first, least); begin <= std::min(last, most);) {
        const uint32_t end = std::min({last, most, begin | low});
        leads[ranges.make(begin & low, end & low, static_cast<int>(size))].set(mark | begin >> bits);
        begin = end + 1;
      }
    }
  };
  for (const auto& [first, last] : set.ranges()) {
    if (first < kFirstSurrogate) add(first, std::min(last, kFirstSurrogate - 1));
    if (last > kLastSurrogate) add(std::max(first, kLastSurrogate + 1), last);
  }
  std::vector<Expr> options = {bytes(single)};
  for (const auto& [tail, lead] : leads) options.push_back(sequence(bytes(lead), tail));
  return either(std::move(options));
}

Expr Expressions::quoted(Expr expression) {
  const Expr quote = literal("\"");
  return sequence(quote, sequence(quoted_part(expression), quote));
}

Expr Expressions::quoted_part(Expr expression) {
  if (expression == kNothing || expression == kEmpty) return expression;
  if (const auto found = quotes_.find(expression); found != quotes_.end()) return found->second;
  const Level level(depth_);
  const Node node = nodes_[expression];
  Expr made = expression;
  std::vector<Expr> parts;
  if (node.kind == Kind::kSequence) {  // they lean to the right, one level a byte: a loop
    Expr rest = expression;
    for (; nodes_[rest].kind == Kind::kSequence; rest = nodes_[rest].args[1]) parts.push_back(quoted_part(nodes_[rest].args[0]));
    made = quoted_part(rest);
    for (size_t at = parts.size(); at-- > 0;) made = sequence(parts[at], made);
  } else if (node.kind == Kind::kBytes) {
    made = quoted_bytes(sets_[node.args[0]]);
  } else if (node.kind == Kind::kRepeat) {
    made = repeated(quoted_part(node.args[0]), node.args[1], node.args[2]);
  } else if (node.kind == Kind::kNegated) {
    made = negated(quoted_part(node.args[0]));
  } else if (node.kind != Kind::kRemainder) {
    for (const Expr part : node.args) parts.push_back(quoted_part(part));
    made = node.kind == Kind::kBoth ? both(std::move(parts)) : either(std::move(parts));
  }
  quotes_.emplace(expression, made);
  return made;
}

// Return what stands for a byte of a set: itself, or an escape. Where a set has all control characters, all but those with short
// escapes are written in one way more (derivre's quote_all_ctrl).
Expr Expressions::quoted_bytes(Bytes set) {  // a copy: sets move as others are made
  Bytes plain = set, letters;
  std::vector<Expr> options, hexadecimal;
  size_t controls = 0;
  for (int byte = 0; byte < 0x20; ++byte) controls += set[static_cast<size_t>(byte)];
  const bool has_all = controls == 32, has_all_but_newline = controls == 31 && !set['\n'];
  if (has_all || has_all_but_newline)
    for (const char letter : std::string("\"\\bfrt")) letters.set(static_cast<unsigned char>(letter));
  if (has_all) letters.set('n');
  constexpr char kDigits[] = "0123456789abcdef";
  for (int byte = 0; byte < 0x20; ++byte) {
    const auto place = static_cast<size_t>(byte);
    plain.reset(place);
    if (!set[place]) continue;
    if (const char letter = short_escape(byte)) letters.set(static_cast<unsigned char>(letter));
    const char digit = kDigits[place & 15];
    Bytes both_cases = Bytes().set(static_cast<unsigned char>(digit));
    if (digit > '9') both_cases.set(static_cast<unsigned char>(digit - 32));
    hexadecimal.push_back(sequence(literal(std::string(1, kDigits[place >> 4])), bytes(both_cases)));
  }
  for (const char byte : std::string("\\\"")) {
    const auto place = static_cast<unsigned char>(byte);
    plain.reset(place);
    if (set[place]) letters.set(place);
  }
  plain.reset(0x7F);
  if (set[0x7F]) hexadecimal.push_back(sequence(literal("7"), bytes(Bytes().set('f').set('F'))));
  options.push_back(bytes(plain));
  const Expr coded = sequence(literal("u00"), either(std::move(hexadecimal)));
  options.push_back(sequence(literal("\\"), either({bytes(letters), coded})));
  return either(std::move(options));
}

}  // namespace spc::constraints
