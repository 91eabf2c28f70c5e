// ONNX files as they are written, in protobuf: https://protobuf.dev/programming-guides/encoding (runtime/protobuf.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spc {

// One field of a message. integer: its value where it is written as one, else 0; value: else its bytes; whole: all of it.
struct Field {
  uint64_t number, integer;
  std::string_view value, whole;
};

// The field of a message that begins at `at`, which is then behind it. Throws Error(kEngine) for what is none.
Field read_field(std::string_view message, size_t& at);

// A field that holds an integer.
std::string integer_field(uint64_t number, uint64_t value);
// A field that holds bytes, a text or a message.
std::string bytes_field(uint64_t number, std::string_view value);

}  // namespace spc
