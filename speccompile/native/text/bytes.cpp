#include "bytes.h"

#include <array>
#include <string>

#include "unicode.h"

namespace spc {
namespace {

constexpr uint32_t kLetters = 0x144;  // all are below

struct Table {
  std::array<std::string, 256> letters;
  std::array<int, kLetters> bytes;

  // Bytes that Latin-1 shows stand for themselves, the others follow from 256 on.
  Table() {
    bytes.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool shown = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const uint32_t code = shown ? byte : next++;
      unicode::append(letters[byte], code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

}  // namespace

std::string_view letter_of_byte(char byte) { return table().letters[static_cast<unsigned char>(byte)]; }

int byte_of_letter(uint32_t code) { return code < kLetters ? table().bytes[code] : -1; }

}  // namespace spc
