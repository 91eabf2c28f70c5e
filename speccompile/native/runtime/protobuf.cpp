#include "protobuf.h"

#include "../errors.h"

namespace spc {
namespace {

constexpr uint64_t kInteger = 0, kEight = 1, kBytes = 2, kFour = 5;  // the ways in which a value is written

[[noreturn]] void refuse(const std::string& what) { throw Error(Kind::kEngine, "no ONNX model: " + what); }

// A number of seven bits a byte, the lowest first. `at` is then behind it.
uint64_t read_integer(std::string_view message, size_t& at) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at >= message.size()) refuse("it ends within a field");
    const auto byte = static_cast<unsigned char>(message[at++]);
    number |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
  refuse("an integer is longer than 64 bits");
}

std::string integer_bytes(uint64_t value) {
  std::string written;
  for (; value >= 0x80; value >>= 7) written += static_cast<char>((value & 0x7F) | 0x80);
  return written + static_cast<char>(value);
}

}  // namespace

Field read_field(std::string_view message, size_t& at) {
  const size_t start = at;
  const uint64_t tag = read_integer(message, at), kind = tag & 7;
  uint64_t integer = 0, size = 0;
  if (kind == kInteger)
    integer = read_integer(message, at);
  else if (kind == kBytes)
    size = read_integer(message, at);
  else if (kind == kEight || kind == kFour)
    size = kind == kEight ? 8 : 4;
  else
    refuse("a field is written in the way " + std::to_string(kind) + ", which protobuf does not have");
  if (size > message.size() - at) refuse("it ends within a field");
  at += size;
  return {tag >> 3, integer, message.substr(at - size, size), message.substr(start, at - start)};
}

std::string integer_field(uint64_t number, uint64_t value) {
  return integer_bytes(number << 3 | kInteger) + integer_bytes(value);
}

std::string bytes_field(uint64_t number, std::string_view value) {
  std::string field = integer_bytes(number << 3 | kBytes) + integer_bytes(value.size());
  return field.append(value);
}

}  // namespace spc
