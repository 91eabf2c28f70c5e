// The bytes of weights that a graph reads, from its file alone, by the field numbers of
// https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
#include <algorithm>
#include <iterator>
#include <vector>

#include "../contract.h"
#include "../files.h"
#include "../runtime/protobuf.h"
#include "bench_roofline.h"

namespace spc::cli {
namespace {

// Operators that read some rows of a table, and which of their inputs are tables. In the project's own layout rows lie in
// tiles, and who reads one of a tile's reads all of its memory.
const std::map<std::string_view, std::vector<size_t>> kLookups = {{"Gather", {0}},
                                                                  {"GatherBlockQuantized", {0, 2, 3}},
                                                                  {"EmbedFloat32", {1}},
                                                                  {"EmbedBFloat16", {1}},
                                                                  {"EmbedInt8", {1, 2}},
                                                                  {"EmbedBlocks4", {1, 2, 3}},
                                                                  {"EmbedBlocks8", {1, 2, 3}}};

// 0 for inputs that are no weights.
int64_t bits_of(uint64_t kind) {
  for (const auto& [type, bits] : kBits)
    if (static_cast<uint64_t>(type) == kind) return bits;
  return 0;
}

struct Initializer {
  std::string_view name;
  int64_t bytes = 0, rows = 1;
};

// A node that reads a value, the value's place among its inputs, and its first output.
struct Use {
  std::string_view operation, output;
  size_t place;
};

class Model {
 public:
  explicit Model(std::string_view file) {
    fields(file, [this](const Field& field) {
      if (field.number == 7) read_graph(field.value);
    });
  }

  WeightReads reads() const {
    WeightReads found;
    for (const Initializer& each : initializers_) count(each, each.name, found);
    return found;
  }

 private:
  template <class F>
  static void fields(std::string_view message, F f) {
    for (size_t at = 0; at < message.size();) f(read_field(message, at));
  }

  // Every node that reads the value: whether it looks rows up.
  void count(const Initializer& weight, std::string_view name, WeightReads& found) const {
    for (auto [use, end] = uses_.equal_range(name); use != end; ++use) {
      const auto& [operation, output, place] = use->second;
      const bool is_passed = std::find(std::begin(kPassedOn), std::end(kPassedOn), operation) != std::end(kPassedOn);
      if (is_passed && uses_.count(output)) {
        count(weight, output, found);
        continue;
      }
      const auto tables = kLookups.find(operation);
      const bool is_lookup = tables != kLookups.end() && std::count(tables->second.begin(), tables->second.end(), place);
      (is_lookup ? found.row : found.whole) += is_lookup ? weight.bytes / std::max<int64_t>(weight.rows, 1) : weight.bytes;
    }
  }

  void read_graph(std::string_view message) {
    fields(message, [this](const Field& field) {
      if (field.number == 1) read_node(field.value);
      if (field.number == 5) read_initializer(field.value);
    });
  }

  void read_node(std::string_view message) {
    std::vector<std::string_view> inputs, outputs;
    std::string_view operation;
    fields(message, [&](const Field& field) {
      if (field.number == 1) inputs.push_back(field.value);
      if (field.number == 2) outputs.push_back(field.value);
      if (field.number == 4) operation = field.value;
      if (field.number != 5) return;
      fields(field.value, [this](const Field& inner) {  // an attribute, which may be a graph, or several
        if (inner.number == 6 || inner.number == 11) read_graph(inner.value);
      });
    });
    for (size_t place = 0; place < inputs.size(); ++place)
      uses_.emplace(inputs[place], Use{operation, outputs.empty() ? "" : outputs[0], place});
  }

  void read_initializer(std::string_view message) {
    Initializer found;
    Shape shape;
    uint64_t kind = 0;
    fields(message, [&](const Field& field) {
      if (field.number == 1) add_sizes(field, shape);
      if (field.number == 2) kind = field.integer;
      if (field.number == 8) found.name = field.value;
    });
    found.bytes = (product(shape) * bits_of(kind) + 7) / 8;
    if (!shape.empty()) found.rows = shape[0];
    initializers_.push_back(found);
  }

  // One dimension by itself, or all in a row.
  static void add_sizes(const Field& field, Shape& shape) {
    if (field.value.empty()) shape.push_back(static_cast<int64_t>(field.integer));
    uint64_t number = 0;
    int shift = 0;
    for (const char each : field.value) {
      const auto byte = static_cast<unsigned char>(each);
      number |= static_cast<uint64_t>(byte & 0x7F) << shift;
      shift = byte < 0x80 ? 0 : shift + 7;
      if (byte >= 0x80) continue;
      shape.push_back(static_cast<int64_t>(number));
      number = 0;
    }
  }

  std::vector<Initializer> initializers_;
  std::multimap<std::string_view, Use> uses_;
};

}  // namespace

WeightReads weight_reads(const std::string& path) {
  const MappedFile file(path);
  return Model(file.bytes()).reads();
}

}  // namespace spc::cli
