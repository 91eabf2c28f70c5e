// The letters that stand for bytes in byte-level vocabularies, and the tokens that stand for bytes in others.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "text.h"

namespace spc {

std::string_view letter_of_byte(char byte);
// -1 for another letter.
int byte_of_letter(uint32_t code);

// Return "<0x41>" of 0x41.
inline std::string byte_token(unsigned byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", byte & 0xFFu);
  return name;
}

// Return the ids of the tokens of a text's bytes; none where a byte has no token. vocabulary: has id(name).
template <class Vocabulary>
std::optional<TokenIds> byte_tokens(std::string_view text, const Vocabulary& vocabulary) {
  TokenIds ids;
  for (const char byte : text) {
    const std::optional<uint32_t> id = vocabulary.id(byte_token(static_cast<unsigned char>(byte)));
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace spc
