// The letters that stand for bytes in byte-level vocabularies.
#pragma once

#include <cstdint>
#include <string_view>

namespace spc {

std::string_view letter_of_byte(char byte);
// -1 for another letter.
int byte_of_letter(uint32_t code);

}  // namespace spc
