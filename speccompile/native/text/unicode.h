// Characters: UTF-8, and their properties (unicode_data.h).
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spc::unicode {

inline constexpr uint32_t kLast = 0x10FFFF;

// The character that begins at `at` in text that is UTF-8, and its length.
struct Character {
  uint32_t code;
  uint32_t size;
};

inline uint32_t length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline Character decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const auto more = [&](size_t i) { return byte(i) & 0x3F; };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | more(1), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | more(1) << 6 | more(2), 3};
  return {(first & 0x07) << 18 | more(1) << 12 | more(2) << 6 | more(3), 4};
}

inline bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Return the start of the character before `at`, which is not 0.
inline size_t before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

void append(std::string& to, uint32_t code);

// The text of bytes that may be no UTF-8: U+FFFD for each longest beginning of a character, as Rust's from_utf8_lossy.
std::string lossy(std::string_view bytes);

// A set of characters.
class Set {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // first, last

  Set() = default;
  explicit Set(std::vector<Range> ranges);

  bool has(uint32_t code) const { return code < 128 ? ascii_[code] : has_beyond(code); }
  bool empty() const { return ranges_.empty(); }
  // In order, with a gap between any two.
  const std::vector<Range>& ranges() const { return ranges_; }

  Set operator|(const Set& other) const;
  Set operator&(const Set& other) const { return ~(~*this | ~other); }
  Set operator~() const;

 private:
  bool has_beyond(uint32_t code) const;

  std::vector<Range> ranges_;
  std::bitset<128> ascii_;
};

// General categories of regular expressions by their names (Lu, L, ..); empty for another name.
Set category(std::string_view name);
// One of kProperties by its name; empty for another name.
Set property(std::string_view name);
// Runs of characters as kProperties has them.
Set unpacked(const char* runs);

// Numbers as scripts/unicode_tables.py packs them.
class Packed {
 public:
  explicit Packed(std::string_view text) : text_(text) {}
  bool more() const { return at_ < text_.size(); }
  uint32_t number();
  int32_t signed_number();

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// Mapping of each character of a run of kFolds or kLowercase.
struct Moved {
  uint32_t code, to;
};
std::vector<Moved> moves(std::string_view packed);

}  // namespace spc::unicode
