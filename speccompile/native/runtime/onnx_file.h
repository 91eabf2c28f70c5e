// The little of ONNX's file format that mapping weights needs: where initializers lie (speccompile/runtime/devices/onnx_file.py).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spc {

using Entries = std::vector<std::pair<std::string, std::string>>;

// An initializer of one byte, the first of a file, whose other entries tell ONNX Runtime of more in that file.
struct PlaceholderInitializer {
  std::string location;
  Entries entries;
};

// What a serialized model says of each initializer in a file: its `location`, `offset`, `length` and other keys. Throws
// Error(kEngine) for what is no model.
std::vector<Entries> external_data(std::string_view model);

// The model with its initializers where `locate` says of their location, and carriers. Throws Error(kEngine).
//
// A carrier is an output of the graph as well, because what nothing reads is removed; nobody need bind it.
std::string with_carriers(std::string_view model, const std::function<std::string(std::string_view location)>& locate,
                          const std::vector<PlaceholderInitializer>& carriers);

}  // namespace spc
