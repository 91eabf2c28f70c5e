// Protobuf encoding of ONNX files: https://protobuf.dev/programming-guides/encoding (runtime/devices/protobuf.py).
//
// By hand (210 lines with onnx_file.cpp), because ONNX Runtime tells nothing of a file's external weights before a session has
// read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spc {

// One field of a message. integer: value of an integer field, else 0; value: bytes of any other field; whole: encoded field.
struct Field {
  uint64_t number, integer;
  std::string_view value, whole;
};

// Read the field at `at` and advance `at` past it. Throws Error(kEngine) for an invalid field.
Field read_field(std::string_view message, size_t& at);

// Encode a field with an integer.
std::string integer_field(uint64_t number, uint64_t value);
// Encode a field with bytes, a text or a message.
std::string bytes_field(uint64_t number, std::string_view value);

}  // namespace spc
