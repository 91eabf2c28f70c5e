#include "manifest.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "../errors.h"

namespace spc {
namespace {

using Type = Json::Type;

constexpr const char* kRebuild = "build the bundle again with this speccompile";
// Sizes beyond these are nobody's; below them no product of them overflows.
constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostTokens = 1 << 16;  // drafts of a round
constexpr double kMostNumbers = 0x1p48;
constexpr size_t kMostDigits = 9;  // of what is added to a width

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kBundle, message, kRebuild); }

const char* python_name(Type type) {
  switch (type) {
    case Type::kInteger: return "int";
    case Type::kText: return "str";
    case Type::kBool: return "bool";
    case Type::kList: return "list";
    default: return "dict";
  }
}

const Json& typed(const Json& value, Type type, const std::string& where) {
  const bool is_big = value.type() == Type::kBig && type == Type::kInteger;  // which Python takes
  if (is_big) refuse(where + ": expected an int of 64 bits, got " + value.repr());
  if (value.type() != type)
    refuse(where + ": expected " + python_name(type) + ", got " + value.python_type() + " " + value.repr());
  return value;
}

// The fields of one JSON object, taken one by one; `finish` refuses what is left over.
class Fields {
 public:
  Fields(const Json& data, std::string where) : data_(typed(data, Type::kObject, where)), where_(std::move(where)) {}

  const Json& take(const std::string& name, Type type) {
    const Json* value = data_.find(name);
    if (!value) refuse(where_ + ": the field " + python_repr(name) + " is missing");
    taken_.insert(name);
    return typed(*value, type, where_ + ": " + name);
  }

  const Json& take_or_none(const std::string& name, Type type) {
    const Json* value = data_.find(name);
    if (!value || !value->is_null()) return take(name, type);
    taken_.insert(name);
    return *value;
  }

  int64_t integer(const std::string& name) { return take(name, Type::kInteger).integer(); }
  const std::string& text(const std::string& name) { return take(name, Type::kText).text(); }
  bool truth(const std::string& name) { return take(name, Type::kBool).boolean(); }

  // f(item, the words that say where it stands) for every item of a list.
  template <class F>
  void each(const std::string& name, F f) {
    const Json::List& items = take(name, Type::kList).list();
    for (size_t i = 0; i < items.size(); ++i) f(items[i], where_ + ": " + name + "[" + std::to_string(i) + "]");
  }

  Names texts(const std::string& name) {
    Names found;
    for (const auto& [key, text] : take(name, Type::kObject).object())
      found.emplace_back(key, typed(text, Type::kText, where_ + ": " + name + "." + key).text());
    return found;
  }

  void finish() const {
    std::set<std::string> left;
    for (const auto& [name, value] : data_.object())
      if (!taken_.count(name)) left.insert(name);
    std::string names;
    for (const std::string& name : left) names += (names.empty() ? "" : ", ") + python_repr(name);
    if (!left.empty()) refuse(where_ + ": unknown field " + names);
  }

 private:
  const Json& data_;
  const std::string where_;
  std::set<std::string> taken_;
};

// A width by its name, and what is added: "window", "window+1".
void check_width(const std::string& width, const std::string& where) {
  const size_t plus = width.find('+');
  const std::string more = plus == std::string::npos ? "0" : width.substr(plus + 1);
  const bool is_number = more.find_first_not_of("0123456789") == std::string::npos;
  if (width.empty() || plus == 0 || more.empty() || more.size() > kMostDigits || !is_number)
    refuse(where + ": expected a width as 'window' or 'window+1', got " + python_repr(width));
}

void check_tensor(const Json& data, const std::string& where) {
  Fields fields(data, where);
  for (const char* name : {"name", "dtype", "buffer", "role"}) fields.text(name);
  fields.each("shape", [](const Json& size, const std::string& place) {
    if (size.is_text()) return check_width(size.text(), place);
    if (typed(size, Type::kInteger, place).integer() < 0) refuse(place + ": expected a size of 0 or more, got " + size.repr());
  });
  fields.finish();
}

// Output name -> input name, for every state that is updated in place.
Json aliases_of(const Graph& graph, const std::string& where) {
  std::map<std::string, std::string> read;
  for (const Tensor& tensor : graph.inputs) read[tensor.buffer] = tensor.name;
  Json aliases{Json::Object{}};
  for (const Tensor& tensor : graph.outputs) {
    if (tensor.role != "state" || !copied_to(tensor).empty()) continue;
    const auto found = read.find(tensor.buffer);
    if (found == read.end())
      refuse(where + ": an output updates the state " + python_repr(tensor.buffer) + ", which no input reads");
    aliases.set(tensor.name, found->second);
  }
  return aliases;
}

Graph read_graph(const Json& data, const std::string& where) {
  Fields fields(data, where);
  fields.text("name");
  for (const char* name : {"inputs", "outputs"}) fields.take(name, Type::kList);
  fields.each("inputs", check_tensor);
  fields.each("outputs", check_tensor);
  fields.texts("aliases");
  const Json& written = data["aliases"];
  fields.finish();
  Graph graph = Graph::from_json(data);
  const Json aliases = aliases_of(graph, where);
  if (written != aliases) refuse(where + ": aliases are " + written.repr() + ", its inputs and outputs say " + aliases.repr());
  return graph;
}

Json read_build(const Json& data, const std::string& where) {
  if (data.is_null()) return data;
  Fields fields(data, where);
  fields.text("deferred");
  fields.texts("sources");
  fields.take("settings", Type::kObject);
  fields.take("reports", Type::kObject);
  fields.finish();
  return data;
}

EngineEntry read_engine(const Json& data, const std::string& where) {
  Fields fields(data, where);
  EngineEntry engine;
  engine.name = fields.text("name");
  engine.backend = fields.text("backend");
  engine.provider = fields.text("provider");
  engine.files = fields.texts("files");
  engine.precision = fields.texts("precision");
  fields.each("graphs", [&](const Json& item, const std::string& place) { engine.graphs.push_back(read_graph(item, place)); });
  engine.compute_capability = fields.take_or_none("compute_capability", Type::kText).text();
  engine.build = read_build(fields.take_or_none("build", Type::kObject), where + ": build");
  fields.finish();
  return engine;
}

// What the file says of the graphs' buffers: each shape once, states last.
Json buffers_of(const std::vector<Graph>& graphs) {
  std::set<std::tuple<std::string, std::string, std::string>> known;
  Json::List found;
  const auto add = [&](const Tensor& tensor) {
    Json::List shape;
    for (const Dimension& size : tensor.shape) shape.push_back(size.to_json());
    Json row{Json::Object{{"name", tensor.buffer}, {"dtype", tensor.dtype}, {"shape", shape}, {"role", tensor.role}}};
    if (known.emplace(tensor.buffer, tensor.dtype, row["shape"].dump()).second) found.push_back(std::move(row));
  };
  for (const Graph& graph : graphs) {
    std::for_each(graph.inputs.begin(), graph.inputs.end(), add);
    std::for_each(graph.outputs.begin(), graph.outputs.end(), add);
  }
  std::stable_partition(found.begin(), found.end(), [](const Json& row) { return row["role"].text() != "state"; });
  return found;
}

void check_size(const std::string& field, int64_t size, int64_t least, int64_t most = kLargest) {
  if (size < least || size > most)
    refuse(field + ": expected a number from " + std::to_string(least) + " to " + std::to_string(most) + ", got " +
           std::to_string(size));
}

double most_of(const Dimension& size, int64_t widest) {
  if (size.width.empty()) return static_cast<double>(size.size);
  const size_t plus = std::min(size.width.find('+'), size.width.size());
  return static_cast<double>(widest + std::strtoll(size.width.c_str() + plus, nullptr, 10));
}

// No product of a shape's sizes may overflow, whatever its widths are.
void check_shapes(const std::vector<Graph>& graphs, int64_t widest, const std::string& file) {
  for (const Graph& graph : graphs) {
    for (const std::vector<Tensor>* tensors : {&graph.inputs, &graph.outputs}) {
      for (const Tensor& tensor : *tensors) {
        double numbers = 1;
        for (const Dimension& each : tensor.shape) numbers *= std::max(1.0, most_of(each, widest));
        if (numbers <= kMostNumbers) continue;
        refuse(file + ": the tensor " + python_repr(tensor.name) + " of the graph " + python_repr(graph.name) +
               " is larger than any memory");
      }
    }
  }
}

// Python needs no such checks: its integers have no end, and numpy refuses what is no shape.
void check_sizes(const Manifest& manifest, const std::string& file) {
  check_size(file + ": max_length", manifest.max_length, 1);
  check_size(file + ": prefill_chunk", manifest.prefill_chunk, 1);
  check_size(file + ": tokens", manifest.tokens, 0, kMostTokens);
  check_size(file + ": depth", manifest.depth, 0, manifest.tokens);
  check_size(file + ": catch_up", manifest.catch_up, 0);
  check_size(file + ": vocabulary_size", manifest.vocabulary_size, 1);
  // a chunk, a window, or a history, which is rounded up to a power of two
  const int64_t widest = 2 * (manifest.max_length + manifest.prefill_chunk + manifest.tokens + manifest.catch_up + 1);
  if (static_cast<double>(manifest.batch_size) * static_cast<double>(widest) > kMostNumbers)
    refuse(file + ": batch_size rows of max_length are larger than any memory");
  check_shapes(manifest.graphs, widest, file);
  for (const EngineEntry& engine : manifest.engines) check_shapes(engine.graphs, widest, file);
}

}  // namespace

bool EngineEntry::has(const std::string& graph) const {
  return std::any_of(files.begin(), files.end(), [&](const auto& each) { return each.first == graph; });
}

const std::string& EngineEntry::file(const std::string& graph) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& each) { return each.first == graph; });
  if (found == files.end()) refuse("manifest.json: engine " + python_repr(name) + " has no graph " + python_repr(graph));
  return found->second;
}

Manifest Manifest::from_json(const Json& data, const std::string& file) {
  Fields fields(data, file);
  Manifest manifest;
  fields.integer("format");
  fields.integer("contract");
  manifest.speccompile = fields.text("speccompile");
  manifest.name = fields.text("name");
  manifest.exact = fields.truth("exact");
  manifest.decoding = fields.text("decoding");
  manifest.method = fields.text("method");
  manifest.batch_size = fields.integer("batch_size");
  manifest.max_length = fields.integer("max_length");
  manifest.prefill_chunk = fields.integer("prefill_chunk");
  manifest.tokens = fields.integer("tokens");
  manifest.tree = fields.text("tree");
  manifest.depth = fields.integer("depth");
  manifest.sample = fields.truth("sample");
  manifest.catch_up = fields.integer("catch_up");
  manifest.vocabulary_size = fields.integer("vocabulary_size");
  manifest.tokenizer = fields.truth("tokenizer");
  fields.each("eos_token_ids", [&](const Json& item, const std::string& place) {
    manifest.eos_token_ids.push_back(typed(item, Type::kInteger, place).integer());
  });
  fields.each("graphs", [&](const Json& item, const std::string& place) {
    manifest.graphs.push_back(read_graph(item, place));
  });
  fields.each("engines", [&](const Json& item, const std::string& place) {
    manifest.engines.push_back(read_engine(item, place));
  });
  fields.take("plan", Type::kObject);
  const Json& written = fields.take("buffers", Type::kList);
  fields.finish();
  if (written != buffers_of(manifest.graphs)) refuse(file + ": buffers are not those of its graphs");
  check_size(file + ": batch_size", manifest.batch_size, 1);
  manifest.graphs = with_batch(std::move(manifest.graphs), manifest.batch_size);
  for (EngineEntry& engine : manifest.engines) engine.graphs = with_batch(std::move(engine.graphs), manifest.batch_size);
  check_sizes(manifest, file);
  manifest.json = data;
  return manifest;
}

}  // namespace spc
