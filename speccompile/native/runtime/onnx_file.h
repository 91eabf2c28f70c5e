// ONNX file format, as far as mapped weights need it: places of initializers (speccompile/runtime/devices/onnx_file.py).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spc {

using Entries = std::vector<std::pair<std::string, std::string>>;

// Initializer of one byte, the first of a file, whose other entries tell ONNX Runtime of more data in that file.
struct PlaceholderInitializer {
  std::string location;
  Entries entries;
};

// Return the external-data entries of each initializer of a serialized model: `location`, `offset`, `length` and other keys.
// Throws Error(kEngine) for an invalid model.
std::vector<Entries> external_data(std::string_view model);

// Return the model with its initializers' locations mapped by `locate`, and with added carriers. Throws Error(kEngine).
//
// A carrier is also an output of the graph, because unused initializers are removed; it need not be bound.
std::string with_carriers(std::string_view model, const std::function<std::string(std::string_view location)>& locate,
                          const std::vector<PlaceholderInitializer>& carriers);

}  // namespace spc
