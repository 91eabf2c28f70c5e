#include "manifest.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

using Type = Json::Type;

constexpr const char* kRebuild = "build the bundle again with this speccompile";
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

Type json_type(FieldType type) {
  switch (type) {
    case FieldType::kBool: return Type::kBool;
    case FieldType::kInteger: return Type::kInteger;
    case FieldType::kText: return Type::kText;
    case FieldType::kList: return Type::kList;
    default: return Type::kObject;
  }
}

const Json& typed(const Json& value, Type type, const std::string& where) {
  const bool is_big = value.type() == Type::kBig && type == Type::kInteger;  // which Python takes
  if (is_big) refuse(where + ": expected an int of 64 bits, got " + value.repr());
  if (value.type() != type)
    refuse(where + ": expected " + python_name(type) + ", got " + value.python_type() + " " + value.repr());
  return value;
}

// A width by its name with an addend: "window", "window+1".
void check_width(const std::string& width, const std::string& where) {
  const size_t plus = width.find('+');
  const std::string more = plus == std::string::npos ? "0" : width.substr(plus + 1);
  const bool is_number = more.find_first_not_of("0123456789") == std::string::npos;
  if (width.empty() || plus == 0 || more.empty() || more.size() > kMostDigits || !is_number)
    refuse(where + ": expected a width as 'window' or 'window+1', got " + python_repr(width));
}

// A size of a shape: a number or a width. Python takes any number and any text.
void check_dimension(const Json& size, const std::string& where) {
  if (size.is_text()) return check_width(size.text(), where);
  if (typed(size, Type::kInteger, where).integer() < 0) refuse(where + ": expected a size of 0 or more, got " + size.repr());
}

void check_record(const JsonRecord& record, const Json& data, const std::string& where);

// An item of a list, or a value of an object.
void check_item(const JsonField& field, const Json& item, const std::string& where) {
  if (field.record) return check_record(*field.record, item, where);
  if (field.items == FieldType::kSize) return check_dimension(item, where);
  if (field.items != FieldType::kAny) typed(item, json_type(field.items), where);
}

void check_value(const JsonField& field, const Json& value, const std::string& where) {
  typed(value, json_type(field.type), where);
  if (field.record && value.is_object()) return check_record(*field.record, value, where);
  for (size_t i = 0; i < value.list().size(); ++i) check_item(field, value.list()[i], where + "[" + std::to_string(i) + "]");
  for (const auto& [key, item] : value.object()) check_item(field, item, where + "." + key);
}

// Throws unless `data` has the fields of a record, of their types, and no others.
void check_record(const JsonRecord& record, const Json& data, const std::string& where) {
  std::set<std::string> left;
  for (const auto& [name, value] : typed(data, Type::kObject, where).object()) left.insert(name);
  for (const JsonField& field : record) {
    const Json* value = data.find(field.name);
    if (!value && field.is_optional) continue;
    if (!value) refuse(where + ": the field " + python_repr(field.name) + " is missing");
    if (!value->is_null() || !field.is_nullable) check_value(field, *value, where + ": " + field.name);
    left.erase(field.name);
  }
  if (!left.empty()) refuse(where + ": unknown field " + comma_separated(left, [](const std::string& name) { return python_repr(name); }));
}

// An object without one of its fields.
Json without(const Json& data, std::string_view name) {
  Json::Object left = data.object();
  left.erase(std::remove_if(left.begin(), left.end(), [&](const Json::Member& each) { return each.first == name; }), left.end());
  return left;
}

Names texts(const Json& object) {
  Names found;
  for (const auto& [key, text] : object.object()) found.emplace_back(key, text.text());
  return found;
}

// Output name -> input name, for every state that is updated in place.
Json aliases_of(const Graph& graph, const std::string& where) {
  std::map<std::string, std::string> read;
  for (const Tensor& tensor : graph.inputs) read[tensor.buffer] = tensor.name;
  Json aliases{Json::Object{}};
  for (const Tensor& tensor : graph.outputs) {
    if (tensor.role != role::kState || !copy_after_run(tensor).empty()) continue;
    const auto found = read.find(tensor.buffer);
    if (found == read.end())
      refuse(where + ": an output updates the state " + python_repr(tensor.buffer) + ", which no input reads");
    aliases.set(tensor.name, found->second);
  }
  return aliases;
}

Graph read_graph(const Json& data, const std::string& where) {
  Graph graph = Graph::from_json(data);
  const Json aliases = aliases_of(graph, where);
  if (data["aliases"] != aliases)
    refuse(where + ": aliases are " + data["aliases"].repr() + ", its inputs and outputs say " + aliases.repr());
  return graph;
}

std::vector<Graph> read_graphs(const Json& data, const std::string& where) {
  std::vector<Graph> found;
  for (const Json& item : data["graphs"].list())
    found.push_back(read_graph(item, where + ": graphs[" + std::to_string(found.size()) + "]"));
  return found;
}

EngineEntry read_engine(const Json& data, const std::string& where) {
  EngineEntry engine;
  engine.name = data["name"].text();
  engine.backend = data["backend"].text();
  engine.provider = data["provider"].text();
  engine.files = texts(data["files"]);
  engine.precision = texts(data["precision"]);
  engine.graphs = read_graphs(data, where);
  engine.compute_capability = data["compute_capability"].text();
  engine.build = data["build"];
  return engine;
}

// Return the file's entry of the graphs' buffers: each shape once, states last.
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
  std::stable_partition(found.begin(), found.end(), [](const Json& row) { return row["role"].text() != role::kState; });
  return found;
}

void check_size(const std::string& field, int64_t size, int64_t least, int64_t most) {
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

// Python needs no such checks: its integers have no end, and numpy refuses invalid shapes.
void check_sizes(const Manifest& manifest, const std::string& file) {
  check_size(file + ": depth", manifest.depth, std::min<int64_t>(1, manifest.tokens), manifest.tokens);
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

int64_t Manifest::ring_window(const std::string& buffer) const {
  for (const auto& [name, window] : rings)
    if (name == buffer) return window;
  return 0;
}

Manifest Manifest::from_json(const Json& data, const std::string& file) {
  const Json* const section = data.find(kSourceSection);
  check_record(kManifestRecord, section ? without(data, kSourceSection) : data, file);
  Manifest manifest;
  if (section) manifest.source = SourceSection::from_json(*section, file + ": " + kSourceSection);
  manifest.speccompile = data["speccompile"].text();
  manifest.name = data["name"].text();
  manifest.exact = data["exact"].boolean();
  manifest.decoding = data["decoding"].text();
  manifest.method = data["method"].text();
  manifest.batch_size = data["batch_size"].integer();
  manifest.max_length = data["max_length"].integer();
  manifest.prefill_chunk = data["prefill_chunk"].integer();
  manifest.tokens = data["tokens"].integer();
  manifest.tree = data["tree"].text();
  manifest.depth = data["depth"].integer();
  manifest.sample = data["sample"].boolean();
  manifest.catch_up = data["catch_up"].integer();
  manifest.vocabulary_size = data["vocabulary_size"].integer();
  manifest.tokenizer = data["tokenizer"].boolean();
  for (const Json& item : data["eos_token_ids"].list()) manifest.eos_token_ids.push_back(item.integer());
  for (const auto& [buffer, window] : data["rings"].object()) manifest.rings.emplace_back(buffer, window.integer());
  manifest.graphs = read_graphs(data, file);
  for (const Json& item : data["engines"].list())
    manifest.engines.push_back(read_engine(item, file + ": engines[" + std::to_string(manifest.engines.size()) + "]"));
  if (data["buffers"] != buffers_of(manifest.graphs)) refuse(file + ": buffers are not those of its graphs");
  for (const Limit& limit : kLimits)
    check_size(file + ": " + limit.field, data[limit.field].integer(), limit.least, limit.most);
  manifest.graphs = with_fixed_batch(std::move(manifest.graphs), manifest.batch_size);
  for (EngineEntry& engine : manifest.engines) engine.graphs = with_fixed_batch(std::move(engine.graphs), manifest.batch_size);
  check_sizes(manifest, file);
  manifest.json = data;
  return manifest;
}

}  // namespace spc
