#include "charsmap.h"

#include "../base64.h"
#include "../byte_order.h"
#include "reading.h"

namespace spc {
namespace {

constexpr size_t kLongestCluster = 5;  // bytes

bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

Precompiled::Precompiled(const std::string& charsmap)
    : extends_(unicode::property("grapheme_extend")),
      prepends_(unicode::property("grapheme_prepend")),
      controls_(unicode::property("grapheme_control")) {
  const std::optional<std::string> bytes = from_base64(charsmap);
  if (!bytes || bytes->size() < 4) throw InvalidTokenizer{"precompiled_charsmap is no map"};
  const size_t size = little_endian_32(*bytes, 0);
  if (size % 4 != 0 || size == 0 || size > bytes->size() - 4) throw InvalidTokenizer{"precompiled_charsmap is no map"};
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian_32(*bytes, at));
  texts_ = bytes->substr(4 + size);
}

// Return the replacement of the shortest key with which a part begins.
std::optional<std::string_view> Precompiled::found(std::string_view part) const {
  size_t node = offset(units_[0]);
  for (const char byte : part) {
    const auto code = static_cast<unsigned char>(byte);
    if (code == 0) return std::nullopt;
    node ^= code;
    if (node >= units_.size() || label(units_[node]) != code) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const size_t start = units_[node] & ~(1u << 31);
    if (start > texts_.size()) return std::nullopt;
    return std::string_view(texts_).substr(start, texts_.find('\0', start) - start);
  }
  return std::nullopt;
}

// The end of the extended grapheme cluster at a place (Unicode Standard Annex 29). Clusters of six bytes or more may end early:
// their characters are replaced one by one.
size_t Precompiled::cluster_end(std::string_view text, size_t at) const {
  const auto next = [&](size_t place) { return place + unicode::length(text[place]); };
  const auto code = [&](size_t place) { return unicode::decode(text, place).code; };
  if (text.substr(at, 2) == "\r\n") return at + 2;
  size_t end = next(at);
  if (controls_.has(code(at))) return end;
  while (prepends_.has(code(at)) && end < text.size() && !controls_.has(code(end)) && !extends_.has(code(end))) at = end, end = next(end);
  while (end < text.size() && extends_.has(code(end))) end = next(end);
  return end;
}

NormalizedString Precompiled::apply(const NormalizedString& line) const {
  NormalizedString made = line.empty_like();
  const std::string_view text = line.text;
  for (size_t at = 0; at < text.size();) {
    const size_t end = cluster_end(text, at);
    const std::optional<std::string_view> whole = end - at <= kLongestCluster ? found(text.substr(at, end - at)) : std::nullopt;
    if (whole) made.add(*whole, line.origin(at));
    for (size_t one = at; !whole && one < end;) {
      const size_t size = unicode::length(text[one]);
      if (const std::optional<std::string_view> part = found(text.substr(one, size)))
        made.add(*part, line.origin(one));
      else
        made.copy(line, one, one + size);
      one += size;
    }
    at = end;
  }
  return made;
}

}  // namespace spc
