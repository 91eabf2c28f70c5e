#include "onnx_file.h"

#include "../errors.h"
#include "protobuf.h"

namespace spc {
namespace {

constexpr uint64_t kGraph = 7;  // of a ModelProto
constexpr uint64_t kInitializer = 5, kOutput = 12;  // of a GraphProto
constexpr uint64_t kDims = 1, kDataType = 2, kTensorName = 8, kExternalData = 13, kDataLocation = 14;  // of a TensorProto
constexpr uint64_t kKey = 1, kValue = 2;  // of a StringStringEntryProto
constexpr uint64_t kUint8 = 2, kExternal = 1;

std::vector<std::string_view> values(std::string_view message, uint64_t number) {
  std::vector<std::string_view> found;
  for (size_t at = 0; at < message.size();) {
    const Field field = read_field(message, at);
    if (field.number == number) found.push_back(field.value);
  }
  return found;
}

// The message with the values of all fields of a number changed.
template <class F>
std::string changed(std::string_view message, uint64_t number, F change) {
  std::string made;
  for (size_t at = 0; at < message.size();) {
    const Field field = read_field(message, at);
    if (field.number == number)
      made += bytes_field(number, change(field.value));
    else
      made += field.whole;
  }
  return made;
}

std::pair<std::string_view, std::string_view> entry(std::string_view message) {
  const std::vector<std::string_view> keys = values(message, kKey), texts = values(message, kValue);
  if (keys.size() != 1 || texts.size() != 1)
    throw Error(Kind::kEngine, "no ONNX model: expected entries of one key and one value");
  return {keys[0], texts[0]};
}

std::string entry_field(uint64_t number, std::string_view key, std::string_view value) {
  return bytes_field(number, bytes_field(kKey, key) + bytes_field(kValue, value));
}

std::string carrier_fields(const std::string& name, const PlaceholderInitializer& carrier) {
  std::string tensor = integer_field(kDims, 1) + integer_field(kDataType, kUint8) + bytes_field(kTensorName, name);
  tensor += entry_field(kExternalData, "location", carrier.location);
  tensor += entry_field(kExternalData, "offset", "0") + entry_field(kExternalData, "length", "1");
  for (const auto& [key, value] : carrier.entries) tensor += entry_field(kExternalData, key, value);
  tensor += integer_field(kDataLocation, kExternal);
  // TypeProto.Tensor.shape: one dim, whose dim_value is 1; TypeProto.tensor_type: elem_type and shape; ValueInfoProto: name
  // and type
  const std::string shape = bytes_field(2, bytes_field(1, integer_field(1, 1)));
  const std::string kind = bytes_field(1, integer_field(1, kUint8) + shape);
  const std::string info = bytes_field(1, name) + bytes_field(2, kind);
  return bytes_field(kInitializer, tensor) + bytes_field(kOutput, info);
}

}  // namespace

std::vector<Entries> external_data(std::string_view model) {
  std::vector<Entries> found;
  for (const std::string_view graph : values(model, kGraph)) {
    for (const std::string_view tensor : values(graph, kInitializer)) {
      Entries entries;
      for (const std::string_view each : values(tensor, kExternalData)) {
        const auto [key, value] = entry(each);
        entries.emplace_back(key, value);
      }
      if (!entries.empty()) found.push_back(std::move(entries));
    }
  }
  return found;
}

std::string with_carriers(std::string_view model, const std::function<std::string(std::string_view location)>& locate,
                          const std::vector<PlaceholderInitializer>& carriers) {
  const auto moved = [&](std::string_view message) {
    const auto [key, value] = entry(message);
    return key == "location" ? bytes_field(kKey, key) + bytes_field(kValue, locate(value)) : std::string(message);
  };
  const auto extended = [&](std::string_view graph) {
    const auto moved_tensor = [&](std::string_view tensor) { return changed(tensor, kExternalData, moved); };
    std::string made = changed(graph, kInitializer, moved_tensor);
    for (size_t i = 0; i < carriers.size(); ++i) made += carrier_fields("packed." + std::to_string(i), carriers[i]);
    return made;
  };
  return changed(model, kGraph, extended);
}

}  // namespace spc
