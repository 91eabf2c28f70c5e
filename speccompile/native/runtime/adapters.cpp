#include "adapters.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "../bundle/sha256.h"
#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../words.h"
#include "tensor_header.h"

namespace spc {
namespace {

constexpr const char* kBuild = "build a bundle for it: see the recipe's section adapters";
constexpr const char* kMerge = "merge it when the bundle is built: target.adapter";

[[noreturn]] void refuse(const std::string& where, const std::string& received, const std::string& expected, const std::string& hint) {
  throw Error(Kind::kFailed, where + ": received " + received + ", expected " + expected, hint);
}

// The end of the name of a layer's first or second matrix.
std::string end_of(int part) { return std::string(".") + kAdapterTensors[part]; }

std::string read_whole(const std::string& path) {
  try {
    return read_file(path);
  } catch (const FileError& error) {
    refuse(path, error.reason, "a file of an adapter of PEFT", "give the folder that model.save_pretrained of peft has written");
  }
}

Json object_of(std::string_view text, const std::string& path) {
  try {
    Json found = Json::parse(text);
    if (found.is_object()) return found;
  } catch (const JsonError&) {
  }
  refuse(path, "text that is no JSON object", "one", "save the adapter again with peft");
}

// Return Python's bool() of a value of a config.
bool is_set(const Json& value) {
  if (value.is_bool()) return value.boolean();
  if (value.is_number()) return value.number() != 0;
  if (value.is_text()) return !value.text().empty();
  return !value.list().empty() || !value.object().empty();
}

void check_config(const Json& config, const std::string& path) {
  if (config[adapter_key::kPeftType] != Json("LORA")) refuse(path, std::string(adapter_key::kPeftType) + ": " + config[adapter_key::kPeftType].repr(), "LORA", kMerge);
  const Json& task = config[adapter_key::kTaskType];
  if (!task.is_null() && task != Json("CAUSAL_LM")) refuse(path, std::string(adapter_key::kTaskType) + ": " + task.repr(), "CAUSAL_LM", kMerge);
  for (const Json::Member& each : config.object()) {
    const bool is_known = std::any_of(std::begin(adapter_key::kAll), std::end(adapter_key::kAll), [&each](const char* key) { return each.first == key; });
    if (!is_known && is_set(each.second)) refuse(path, each.first + ": " + each.second.repr(), "LoRA of linear layers", kMerge);
  }
  if (is_set(config[adapter_key::kUseDora])) refuse(path, std::string(adapter_key::kUseDora) + ": True", "LoRA of linear layers", kMerge);
  const Json& start = config[adapter_key::kInitLoraWeights];
  const bool is_plain = !start.is_text() || start == Json("gaussian") || start == Json("orthogonal");
  if (!is_plain) refuse(path, std::string(adapter_key::kInitLoraWeights) + ": " + start.repr(), "a start that leaves the base as it is", kMerge);
}

// The alpha of a module: that of the first pattern that ends its name. Patterns are names here: of the regular expressions of
// PEFT only the escaped point is read.
double alpha_of(const Json& config, const std::string& module, const std::string& path) {
  const Json* found = config.find(adapter_key::kLoraAlpha);
  for (const auto& [pattern, value] : config[adapter_key::kAlphaPattern].object()) {
    std::string name;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.') ++i;
      const char each = pattern[i];
      if (!std::isalnum(static_cast<unsigned char>(each)) && each != '_' && each != '.')
        refuse(path, std::string(adapter_key::kAlphaPattern) + ": " + python_repr(pattern), "names without other signs of regular expressions", kMerge);
      name += each;
    }
    if (ends_with("." + module, "." + name)) {
      found = &value;
      break;
    }
  }
  if (!found || !found->is_number() || !(found->number() > 0 && found->number() < 1e6))
    refuse(path, std::string(adapter_key::kLoraAlpha) + ": " + (found ? found->repr() : "nothing"), "a number for " + module, "save the adapter again with peft");
  return found->number();
}

// A tensor of a file: its shape and its bytes there.
struct Stored {
  const Dtype* dtype;
  int64_t rows, width;
  std::string_view bytes;
};

// The kind of numbers that safetensors names so; null for any other than floats.
const Dtype* float_named(const std::string& name) {
  for (const char* const each : {dtype::kFloat32, dtype::kFloat16, dtype::kBfloat16})
    if (const Dtype* const found = dtype_named(each); name == found->safetensors) return found;
  return nullptr;
}

float half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? std::ldexp(1024.0f + static_cast<float>(fraction), exponent - 25)
                                                                             : std::ldexp(static_cast<float>(fraction), -24);
  return bits >> 15 ? -size : size;
}

float number_at(const Stored& tensor, size_t place) {
  if (tensor.dtype->name == std::string_view(dtype::kFloat32)) {
    float found;
    std::memcpy(&found, tensor.bytes.data() + place * 4, 4);
    return found;
  }
  uint16_t bits;
  std::memcpy(&bits, tensor.bytes.data() + place * 2, 2);
  if (tensor.dtype->name == std::string_view(dtype::kFloat16)) return half(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float found;
  std::memcpy(&found, &wide, 4);
  return found;
}

Stored stored_of(const std::string& name, const Json& entry, std::string_view data, const std::string& path) {
  const Json &shape = entry["shape"], &offsets = entry["data_offsets"], &dtype = entry["dtype"];
  const Dtype* const kind = float_named(dtype.text());
  const int64_t size = kind ? static_cast<int64_t>(kind->bytes) : 0;
  const auto is_size = [](const Json& each) { return each.type() == Json::Type::kInteger && each.integer() >= 0 && each.integer() <= INT32_MAX; };
  const bool is_whole = shape.list().size() == 2 && std::all_of(shape.list().begin(), shape.list().end(), is_size) && offsets.list().size() == 2 &&
                        offsets.list()[0].type() == Json::Type::kInteger && offsets.list()[1].type() == Json::Type::kInteger;
  if (size && is_whole) {
    const int64_t rows = shape.list()[0].integer(), width = shape.list()[1].integer();
    const int64_t start = offsets.list()[0].integer(), end = offsets.list()[1].integer();
    if (start >= 0 && start <= end && end <= static_cast<int64_t>(data.size()) && rows * width <= end - start && end - start == rows * width * size)
      return {kind, rows, width, data.substr(static_cast<size_t>(start), static_cast<size_t>(end - start))};
  }
  refuse(path, "tensor '" + name + "' as " + entry.repr().substr(0, 120), "a matrix of float32, float16 or bfloat16 in the file",
         "save the adapter again with peft");
}

// Return module -> number of the matrix -> what a file of safetensors holds of it, as views of the content.
std::map<std::string, std::map<int, Stored>> modules_of(const std::string& content, const std::string& path) {
  const uint64_t length = header_bytes(content);
  if (content.size() < kDrafterStateLengthBytes || length > content.size() - kDrafterStateLengthBytes)
    refuse(path, "a file of " + std::to_string(content.size()) + " bytes", "the whole header in the file", "copy or download the file again");
  const std::string_view all = content, data = all.substr(kDrafterStateLengthBytes + length);
  const Json header = object_of(all.substr(kDrafterStateLengthBytes, length), path);
  std::map<std::string, std::map<int, Stored>> modules;
  for (const auto& [name, entry] : header.object()) {
    if (name == kDrafterStateMetadata) continue;
    const int part = ends_with(name, end_of(0)) ? 0 : ends_with(name, end_of(1)) ? 1 : -1;
    if (part < 0 || !starts_with(name, kAdapterNames)) refuse(path, "tensor '" + name + "'", "LoRA of linear layers", kMerge);
    const size_t start = std::strlen(kAdapterNames);
    modules[name.substr(start, name.size() - start - end_of(part).size())].emplace(part, stored_of(name, entry, data, path));
  }
  if (modules.empty()) refuse(path, "no tensors", "those of an adapter", "save the adapter again with peft");
  return modules;
}

// Refuse two matrices that do not lead from a layer's input to its output. input, output: the layer's widths.
void check_widths(const std::string& folder, const std::string& module, const Stored& a, const Stored& b, int64_t input, int64_t output) {
  if (a.rows == b.width && a.rows >= 1 && a.width == input && b.rows == output) return;
  refuse(folder, "a change of " + module + " from " + std::to_string(a.width) + " to " + std::to_string(b.rows) + " numbers",
         std::to_string(input) + " to " + std::to_string(output) + ", as this bundle's target has", "give an adapter of this target");
}

// Return a matrix row by row.
std::vector<float> floats_of(const Stored& matrix) {
  std::vector<float> floats(static_cast<size_t>(matrix.rows * matrix.width));
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = number_at(matrix, i);
  return floats;
}

// Return a matrix column by column, times a factor.
std::vector<float> scaled_transpose_of(const Stored& matrix, float scale) {
  std::vector<float> floats(static_cast<size_t>(matrix.rows * matrix.width));
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.width; ++column)
      floats[static_cast<size_t>(column * matrix.rows + row)] = scale * number_at(matrix, static_cast<size_t>(row * matrix.width + column));
  return floats;
}

void check_finite(const std::string& folder, const std::string& module, const std::vector<float>& numbers) {
  if (std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); })) return;
  refuse(folder, "numbers of " + module + " that are infinite or no numbers", "finite ones",
         "the training has failed: take an earlier checkpoint");
}

}  // namespace

Adapters::Adapters(Engine& engine, const std::vector<Graph>& graphs) : engine_(engine) {
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.inputs)
      if (starts_with(tensor.name, kAdapterPrefix) && shapes_.emplace(tensor.name, tensor.concrete_shape({})).second) order_.push_back(tensor.name);
  if (shapes_.empty()) return;
  slots_ = shapes_.begin()->second[0] - 1;
  rank_ = shapes_.begin()->second[1];
}

void Adapters::check_name(const std::string& name) const {
  const std::string what = "adapter " + python_repr(name) + ": ";
  if (!slots_) throw Error(Kind::kUsage, what + "received it for a bundle without slots for adapters", kBuild);
  const auto is_sign = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) || each == '.' || each == '_' || each == '-'; };
  if (name.empty() || name.size() > 64 || !std::isalnum(static_cast<unsigned char>(name[0])) || !std::all_of(name.begin(), name.end(), is_sign))
    throw Error(Kind::kUsage, "adapter: received the name " + python_repr(name) + ", expected letters, digits, '.', '_' and '-', at most 64",
                "for example poet");
  if (loaded_.count(name)) throw Error(Kind::kUsage, what + "it is loaded already, expected another name", "unload it first");
  if (static_cast<int64_t>(loaded_.size()) == slots_)
    throw Error(Kind::kUsage, what + "all " + std::to_string(slots_) + " slots are taken, expected a free one",
                "unload one, or build the bundle with more adapters.slots");
}

void Adapters::load(const std::string& name, const std::string& folder) {
  check_name(name);
  const Matrices matrices = read(folder);
  std::set<int64_t> taken;
  for (const auto& each : loaded_) taken.insert(each.second.slot);
  int64_t slot = 1;
  while (taken.count(slot)) ++slot;
  std::string hashed;
  for (const std::string& buffer : order_) {
    const Shape& shape = shapes_.at(buffer);
    float* const line = engine_.host_view(buffer, shape).floats() + slot * shape[1] * shape[2];
    std::fill_n(line, shape[1] * shape[2], 0.0f);
    const auto found = matrices.find(buffer);
    if (found == matrices.end()) continue;
    const Matrix& rows = found->second;
    std::copy(rows.begin(), rows.end(), line);
    hashed += buffer + " (" + std::to_string(rows.size() / static_cast<size_t>(shape[2])) + ", " + std::to_string(shape[2]) + ") ";
    hashed.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
  }
  loaded_[name] = {slot, sha256(hashed)};
}

void Adapters::unload(const std::string& name) {
  find(name);
  loaded_.erase(name);
}

const Adapters::Loaded& Adapters::find(const std::string& name) const {
  const auto found = loaded_.find(name);
  if (found != loaded_.end()) return found->second;
  throw Error(Kind::kUsage, "adapter: received " + python_repr(name) + ", expected the name of a loaded adapter",
              slots_ ? "load it first: spc_session_load_adapter" : kBuild);
}

Adapters::Matrices Adapters::read(const std::string& folder) const {
  const std::string config_path = join_path(folder, kAdapterConfig), path = join_path(folder, kAdapterWeights);
  const Json config = object_of(read_whole(config_path), config_path);
  check_config(config, config_path);
  const std::string content = read_whole(path);
  Matrices found;
  for (const auto& [module, parts] : modules_of(content, path)) {
    if (parts.size() != 2) refuse(path, "one matrix of " + module, std::string(kAdapterTensors[0]) + " and " + kAdapterTensors[1], "save the adapter again with peft");
    const Stored &a = parts.at(0), &b = parts.at(1);
    const auto left = shapes_.find(kAdapterPrefix + module + kAdapterParts[0]), right = shapes_.find(kAdapterPrefix + module + kAdapterParts[1]);
    if (left == shapes_.end() || right == shapes_.end())
      refuse(folder, "a change of " + module, "changes of the modules that the bundle has slots for", kBuild);
    check_widths(folder, module, a, b, left->second[2], right->second[2]);
    if (a.rows > rank_)
      refuse(folder, "rank " + std::to_string(a.rows) + " for " + module, "at most " + std::to_string(rank_) + ", as the bundle has",
             "build the bundle with a larger adapters.rank");
    const double rank = static_cast<double>(a.rows), alpha = alpha_of(config, module, config_path);
    const float scale = static_cast<float>(alpha / (is_set(config[adapter_key::kUseRslora]) ? std::sqrt(rank) : rank));
    Matrix down = floats_of(a), up = scaled_transpose_of(b, scale);
    for (const Matrix* const matrix : {&down, &up}) check_finite(folder, module, *matrix);
    found[left->first] = std::move(down);
    found[right->first] = std::move(up);
  }
  return found;
}

}  // namespace spc
