#include "unicode.h"

#include <algorithm>

#include "unicode_data.h"

namespace spc::unicode {
namespace {

// Bytes at `at` that begin a character: all of it, or those that are there, at least 1.
struct Prefix {
  size_t size;
  bool whole;
};

Prefix prefix(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return {1, false};
  const size_t size = length(bytes[at]);
  for (size_t i = 2; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return {i, false};
  return {size, true};
}

}  // namespace

void append(std::string& to, uint32_t code) {
  const auto put = [&](uint32_t byte) { to += static_cast<char>(byte); };
  const auto more = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
    return more(0);
  }
  if (code < 0x10000) {
    put(0xE0 | code >> 12);
  } else {
    put(0xF0 | code >> 18);
    more(12);
  }
  more(6);
  more(0);
}

std::string lossy(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const auto [size, whole] = prefix(bytes, at);
    text += whole ? bytes.substr(at, size) : std::string_view("\xEF\xBF\xBD");
    at += size;
  }
  return text;
}

Set::Set(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const Range& each : ranges) {
    if (!ranges_.empty() && each.first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, each.second);
    else
      ranges_.push_back(each);
  }
  for (const auto& [first, last] : ranges_)
    for (uint32_t code = first; code <= last && code < 128; ++code) ascii_.set(code);
}

bool Set::has_beyond(uint32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), Range(code, kLast + 1));
  return after != ranges_.begin() && std::prev(after)->second >= code;
}

Set Set::operator|(const Set& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return Set(std::move(both));
}

Set Set::operator~() const {
  std::vector<Range> rest;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) rest.emplace_back(next, kLast);
  return Set(std::move(rest));
}

Set unpacked(const char* runs) {
  std::vector<Set::Range> ranges;
  uint32_t last = 0;
  for (Packed packed(runs); packed.more();) {
    const uint32_t first = last + packed.number();
    last = first + packed.number();
    ranges.emplace_back(first, last);
  }
  return Set(std::move(ranges));
}

Set category(std::string_view name) {
  std::vector<Set::Range> ranges;
  uint32_t first = 0;
  for (Packed packed(kCategories); packed.more();) {
    const uint32_t last = first + packed.number();
    const std::string_view found(kCategoryNames + 3 * packed.number(), 2);  // two letters and a space each
    if (!name.empty() && found.substr(0, name.size()) == name) ranges.emplace_back(first, last);
    first = last + 1;
  }
  return Set(std::move(ranges));
}

Set property(std::string_view name) {
  for (const Property& each : kProperties)
    if (name == each.name) return unpacked(each.runs);
  return {};
}

uint32_t Packed::number() {
  uint32_t value = 0;
  for (int shift = 0; more() && shift < 30; shift += 5) {
    const char letter = text_[at_++];
    const uint32_t digit = letter == '~' ? '\\' - '0' : letter == '!' ? '?' - '0' : static_cast<uint32_t>(letter - '0');
    value |= (digit & 31) << shift;
    if (digit < 32) break;
  }
  return value;
}

int32_t Packed::signed_number() {
  const uint32_t value = number();
  return value & 1 ? -static_cast<int32_t>(value / 2) - 1 : static_cast<int32_t>(value / 2);
}

std::vector<Moved> moves(std::string_view text) {
  std::vector<Moved> found;
  uint32_t code = 0;
  for (Packed packed(text); packed.more();) {
    code += packed.number();
    const uint32_t more = packed.number(), stride = packed.number();
    const int32_t move = packed.signed_number();
    for (uint32_t i = 0; i <= more; ++i, code += stride) found.push_back({code, code + static_cast<uint32_t>(move)});
    code -= stride;
  }
  return found;
}

}  // namespace spc::unicode
