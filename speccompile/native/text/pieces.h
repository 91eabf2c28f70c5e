// A text on its way to token ids: what normalizers made of it, and the pieces it was split into.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.h"

namespace spc {

struct NormalizedString {
  std::string text;
  // Position of each byte in the given text; tracked only for Metaspace, which treats the text's beginning differently.
  std::vector<size_t> from;
  bool tracked = false;

  NormalizedString empty_like() const { return {{}, {}, tracked}; }
  size_t origin(size_t at) const { return tracked ? from[at] : 0; }

  void add(std::string_view part, size_t origin) {
    text += part;
    if (tracked) from.insert(from.end(), part.size(), origin);
  }
  void add(uint32_t code, size_t origin) {
    const size_t before = text.size();
    unicode::append(text, code);
    if (tracked) from.insert(from.end(), text.size() - before, origin);
  }
  void copy(const NormalizedString& other, size_t begin, size_t end) {
    text.append(other.text, begin, end - begin);
    if (tracked) from.insert(from.end(), other.from.data() + begin, other.from.data() + end);
  }
};

inline constexpr int64_t kNoToken = -1;

struct Piece {
  size_t begin, end;
  int64_t token = kNoToken;  // of an added token, whose text is not looked at any more
};

struct PreTokenizedString {
  NormalizedString line;
  std::vector<Piece> list;

  std::string_view text(const Piece& piece) const {
    return std::string_view(line.text).substr(piece.begin, piece.end - piece.begin);
  }
};

}  // namespace spc
