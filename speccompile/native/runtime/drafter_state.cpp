#include "drafter_state.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "../errors.h"
#include "../files.h"
#include "../words.h"
#include "tensor_header.h"

namespace spc {
namespace {

constexpr const char* kAnother = "give the file that this bundle wrote, or start from empty states: --reset (Bundle.reset)";

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kUsage, message, kAnother); }

const char* name_of_dtype(const std::string& dtype) {
  if (const Dtype* const found = dtype_named(dtype)) return found->safetensors;
  throw Error(Kind::kBundle, "manifest.json: a state that is kept has the dtype " + python_repr(dtype), "build the bundle again");
}

size_t bytes_of(const Tensor& tensor) { return static_cast<size_t>(product(tensor.concrete_shape({}))) * item_size(tensor.dtype); }

std::string kind_of(const Manifest& manifest) {
  const Json& kind = manifest.json["plan"]["drafter"]["kind"];
  return kind.is_text() ? kind.text() : "none";
}

// Takes a name out of an object.
Json pop(Json& data, const std::string& name) {
  Json::Object& members = data.object();
  const auto found = std::find_if(members.begin(), members.end(), [&](const Json::Member& each) { return each.first == name; });
  if (found == members.end()) return {};
  Json value = std::move(found->second);
  members.erase(found);
  return value;
}

}  // namespace

PersistentState::PersistentState(Engine& engine, const Manifest& manifest, const EngineEntry& entry, std::string tokenizer)
    : engine_(engine),
      manifest_(manifest),
      states_(states(manifest.graphs)),
      kind_(kind_of(manifest)),
      tokenizer_(std::move(tokenizer)) {
  const auto is_same = [](const States::value_type& one, const States::value_type& other) {
    return one.first == other.first && one.second->dtype == other.second->dtype && one.second->shape == other.second->shape;
  };
  const States held = states(entry.graphs);
  if (!std::equal(states_.begin(), states_.end(), held.begin(), held.end(), is_same))
    throw Error(Kind::kBundle, "manifest.json: engine " + python_repr(entry.name) + " keeps other states than its bundle",
                "build the bundle again");
}

PersistentState::States PersistentState::states(const std::vector<Graph>& graphs) {
  States found;
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.inputs)
      if (starts_with(tensor.buffer, kPersistentPrefix)) found[tensor.buffer] = &tensor;
  return found;
}

void PersistentState::check() const {
  if (states_.empty())
    throw Error(Kind::kUsage, "this bundle keeps nothing from one generation to the next: its drafter is " + kind_,
                "leave the file out, or build a bundle whose drafter learns, such as token_recycling");
}

void PersistentState::reset() const {
  for (const auto& [name, tensor] : states_) {
    const std::string zeros(bytes_of(*tensor), '\0');
    engine_.write_state(name, tensor->concrete_shape({}), zeros.data());
  }
}

void PersistentState::save(const std::string& path) const {
  check();
  const std::string plain = plain_path(path);
  std::string written = header();
  for (const auto& [name, tensor] : states_) {
    const Array held = engine_.host_view(name, tensor->concrete_shape({}));
    written.append(static_cast<const char*>(held.data), held.bytes());
  }
  try {
    write_atomically(plain, {written});
  } catch (const FileError& error) {
    throw Error(Kind::kUsage, plain + ": the states cannot be written: " + error.reason, "give a file in a folder that is there");
  }
}

void PersistentState::load(const std::string& path) const {
  check();
  const std::string plain = plain_path(path);
  std::string content;
  size_t most = kDrafterStateLengthBytes + kDrafterStateLongest;
  for (const auto& each : states_) most += bytes_of(*each.second);
  try {
    content = read_file(plain, most);
  } catch (const FileError& error) {
    refuse(plain + ": the states cannot be read: " + error.reason);
  }
  std::string_view numbers;
  const Json header = split_header(content, plain, "a file of states", kAnother, numbers);
  check_header(header, numbers.size(), plain);
  size_t start = 0;
  for (const auto& [name, tensor] : states_) {
    engine_.write_state(name, tensor->concrete_shape({}), numbers.data() + start);
    start += bytes_of(*tensor);
  }
}

Json PersistentState::metadata() const {
  return Json::Object{{"format", kDrafterStateFormat},
                      {"drafter", kind_},
                      {"vocabulary_size", std::to_string(manifest_.vocabulary_size)},
                      {"tokenizer", tokenizer_}};
}

// Return the header's entries of tensors.
Json PersistentState::tensor_entries() const {
  Json rows{Json::Object{}};
  size_t start = 0;
  for (const auto& [name, tensor] : states_) {
    const size_t end = start + bytes_of(*tensor);
    rows.set(name, Json::Object{{"dtype", name_of_dtype(tensor->dtype)},
                                {"shape", list_of(tensor->concrete_shape({}))},
                                {"data_offsets", Json::List{static_cast<int64_t>(start), static_cast<int64_t>(end)}}});
    start = end;
  }
  return rows;
}

// Return the header of a file.
std::string PersistentState::header() const {
  Json rows{Json::Object{{kDrafterStateMetadata, metadata()}}};
  const Json states = tensor_entries();
  for (const auto& [name, row] : states.object()) rows.set(name, row);
  return with_length(rows.dump());
}

// size: of the numbers behind the header.
void PersistentState::check_header(Json header, size_t size, const std::string& path) const {
  const Json found = pop(header, kDrafterStateMetadata), ours = metadata(), states = tensor_entries();
  if (found["format"] != Json(kDrafterStateFormat))
    refuse(path + ": received format " + found["format"].repr() + ", expected " + python_repr(kDrafterStateFormat));
  for (const auto& [key, value] : ours.object())
    if (found[key] != value)
      refuse(path + ": these states are of another " + key.substr(0, key.find("_size")) + ": " + found[key].repr() +
             ", this bundle's is " + value.repr());
  size_t expected = 0;
  for (const auto& [name, row] : states.object()) {
    if (pop(header, name) != row)
      refuse(path + ": expected " + name + " as " + row["dtype"].text() + " " + row["shape"].repr() +
             ", as this bundle has it");
    expected = static_cast<size_t>(row["data_offsets"].list()[1].integer());
  }
  if (!header.object().empty()) refuse(path + ": received " + header.object()[0].first + ", which this bundle does not have");
  if (size != expected)
    refuse(path + ": received " + std::to_string(size) + " bytes of numbers, expected " + std::to_string(expected) +
           ": the file is truncated or damaged");
}

}  // namespace spc
