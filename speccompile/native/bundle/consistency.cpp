#include "consistency.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "../errors.h"
#include "../words.h"
#include "described.h"
#include "engine_consistency.h"

namespace spc {
namespace {

bool has(const Words& words, const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); }

void check_number(const std::string& name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    refuse(name + ": expected a number from " + std::to_string(least) + " to " + std::to_string(most) + ", got " + std::to_string(value));
}

void check_numbers(const Manifest& manifest) {
  for (const Limit& limit : kLimits) check_number(limit.field, manifest.json[limit.field].integer(), limit.least, limit.most);
  check_number("depth", manifest.depth, std::min<int64_t>(1, manifest.tokens), manifest.tokens);
  for (const int64_t token : manifest.eos_token_ids)
    if (token < 0 || token >= kMostTokenIds)
      refuse("eos_token_ids: expected numbers from 0 to " + std::to_string(kMostTokenIds - 1) + ", got " + std::to_string(token));
}

template <class Known>
void check_word(const std::string& name, const std::string& value, const Known& known) {
  if (std::any_of(std::begin(known), std::end(known), [&](const char* each) { return value == each; })) return;
  Words words;
  for (const char* each : known) words.push_back(python_repr(each));
  refuse(name + ": expected " + joined(words, " or ") + ", got " + python_repr(value));
}

void check_words(const Manifest& manifest) {
  check_word("decoding", manifest.decoding, decoding::kAll);
  check_word("tree", manifest.tree, tree::kAll);
}

// Refuse fields that are not what the plan decided. A plan without a key decides nothing.
void check_planned(const Manifest& manifest) {
  for (const PlannedField& field : kPlanned) {
    const Words place = split_words(field.place);
    const Json* planned = &manifest.json["plan"];
    for (const std::string& key : place) planned = planned && planned->is_object() ? planned->find(key) : nullptr;
    const Json& value = manifest.json[field.field];
    if (planned && !planned->is_null() && *planned != value)
      refuse(std::string(field.field) + " is " + value.repr() + ", but plan." + joined(place, ".") + " is " + planned->repr());
  }
}

bool has_width(const std::vector<Graph>& graphs, const std::string& width) {
  const auto named = [&](const Dimension& size) { return size.width == width; };
  const auto has_it = [&](const Tensor& tensor) { return std::any_of(tensor.shape.begin(), tensor.shape.end(), named); };
  return std::any_of(graphs.begin(), graphs.end(), [&](const Graph& graph) { return std::any_of(graph.inputs.begin(), graph.inputs.end(), has_it); });
}

void check_round(const Manifest& manifest) {
  const Words names = names_of(round_only(manifest.graphs));
  Words known;
  bool is_known = false;
  for (const char* each : kRounds) {
    const Words round = split_words(each);
    known.push_back(joined(round, " and "));
    is_known = is_known || sorted(round) == sorted(names);
  }
  if (!is_known || (names.size() > 1 && manifest.tokens == 0))
    refuse("graphs: expected " + (manifest.tokens > 0 ? joined(known, ", ") : std::string(graph::kVerify)) + ", got " +
           (names.empty() ? "none" : joined(names, " and ")));
  const int64_t most = std::max(manifest.prefill_chunk, manifest.tokens + 1) + 1;
  check_number("catch_up", manifest.catch_up, has_width(manifest.graphs, names::kCatchUp), most);
}

// The number of tokens that a state has a row for; -1 if it has no row for each token.
int64_t rows_of(const Tensor& tensor) {
  if (tensor.dtype == dtype::kInt64 && tensor.shape.size() == 2) return tensor.shape[1].size;
  return is_cache(tensor.buffer) && tensor.shape.size() == 4 ? tensor.shape[2].size : -1;
}

void check_state(const Tensor& tensor, const std::string& what, const Manifest& manifest) {
  const std::string prefix = kOutOfPlacePrefix;
  const std::string name = starts_with(tensor.buffer, prefix) ? tensor.buffer.substr(prefix.size()) : tensor.buffer;
  const bool is_kept = starts_with(name, kPersistentPrefix);
  const bool is_component = std::any_of(std::begin(kComponentStates), std::end(kComponentStates),
                                        [&](const char* each) { return starts_with(name, each); });
  const auto is_size = [](const Dimension& size) { return size.width.empty() && size.size > 0; };
  if (!is_kept && !is_component && name != kTokensState)
    refuse(what + " is the state " + python_repr(tensor.buffer) + ", which no graph of this contract has");
  if (!std::all_of(tensor.shape.begin(), tensor.shape.end(), is_size)) refuse(what + " is " + words_of(tensor) + ", expected the sizes of a state");
  if (is_kept) return;
  if (tensor.shape.empty() || tensor.shape.front().size != manifest.batch_size)
    refuse(what + " is " + words_of(tensor) + ", expected " + std::to_string(manifest.batch_size) + " lines: batch_size");
  const bool is_ring = std::any_of(manifest.rings.begin(), manifest.rings.end(), [&](const auto& each) { return each.first == name; });
  const int64_t held = is_ring ? manifest.ring_window(name) : manifest.max_length;
  const int64_t least = held + manifest.widest() + manifest.tokens + 1, rows = rows_of(tensor);
  if (rows >= 0 && rows < least)
    refuse(what + " is " + words_of(tensor) + ", expected " + std::to_string(least) + " rows or more: " +
           (is_ring ? "what attention reads of a ring" : "max_length") + ", the widest window and its drafts");
}

// Refuse rings that are no caches of the target, or of which nothing is read.
void check_rings(const Manifest& manifest) {
  std::set<std::string> states;
  for (const Graph& graph : manifest.graphs)
    for (const Tensor& tensor : graph.inputs)
      if (tensor.role == role::kState && rows_of(tensor) >= 0) states.insert(tensor.buffer);
  for (const auto& [name, window] : manifest.rings) {
    if (!states.count(name) || !starts_with(name, std::string(component::kTarget) + "."))
      refuse("rings: " + python_repr(name) + " is no cache of the target");
    if (window < 1) refuse("rings: " + python_repr(name) + ": expected a number of positions from 1 on, got " + std::to_string(window));
  }
}

std::string expected_size(const std::string& size, const Manifest& manifest) {
  for (const ComputedSize& each : kComputed)
    if (size == each.name) return std::to_string(manifest.json[each.field].integer() + each.more);
  return size;
}

bool fits(const Tensor& tensor, const Words& expected) {
  const Words sizes = sizes_of(tensor);
  if (sizes.size() != expected.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Dimension& size = tensor.shape[i];
    if (sizes[i] != expected[i] && !(expected[i] == "*" && size.width.empty() && size.size > 0)) return false;
  }
  return true;
}

std::string buffer_of(const std::string& name, const std::string& graph) {
  if (graph == graph::kDraft)
    for (const NextRoundInput& each : kNextRoundInputs)
      if (name == each.drafted) return each.buffer;
  return name;
}

void check_tensor(const Tensor& tensor, const std::string& what, const Graph& graph, const Manifest& manifest) {
  if (!dtype_named(tensor.dtype)) {
    Words known;
    for (const Dtype& each : kDtypes) known.push_back(each.name);
    refuse(what + " has the dtype " + python_repr(tensor.dtype) + ", expected one of " + joined(known, ", "));
  }
  if (tensor.role == role::kState) return check_state(tensor, what, manifest);
  const std::string known = starts_with(tensor.name, kAdapterPrefix) ? kAdapterMatrix : tensor.name;
  const auto signature = std::find_if(std::begin(kSignatures), std::end(kSignatures), [&](const Signature& each) { return known == each.name; });
  if (signature == std::end(kSignatures)) refuse(what + ", which no graph of this contract has");
  Words expected;
  for (const std::string& size : split_words(signature->shape)) expected.push_back(expected_size(size, manifest));
  const std::string role = has(split_words(signature->roles), tensor.role) ? tensor.role : signature->roles;
  const std::string buffer = buffer_of(tensor.name, graph.name);
  if (!fits(tensor, expected) || tensor.dtype != signature->dtype || tensor.role != role || tensor.buffer != buffer)
    refuse(what + " is " + words_of(tensor) + ", expected " + words_of(signature->dtype, expected, role, buffer, tensor.name));
}

void check_tensors(const std::vector<Tensor>& tensors, const Words& required, const std::string& way, const Graph& graph, const Manifest& manifest) {
  std::set<std::string> names, twice;
  for (const Tensor& tensor : tensors)
    if (!names.insert(tensor.name).second) twice.insert(tensor.name);
  for (const std::string& name : required)
    if (!names.count(name)) refuse("no " + way + " " + python_repr(name));
  if (!twice.empty()) refuse("the " + way + " " + python_repr(*twice.begin()) + " twice");
  for (const Tensor& tensor : tensors) check_tensor(tensor, "the " + way + " " + python_repr(tensor.name), graph, manifest);
}

// Refuse an input without those that the host writes together with it.
void check_companions(const Graph& graph) {
  for (const Companions& each : kCompanions) {
    if (!graph.input(each.input)) continue;
    for (const std::string& other : split_words(each.others))
      if (!graph.input(other)) refuse("the input " + python_repr(each.input) + " without " + python_repr(other));
  }
}

bool is_alike(const Tensor& one, const Tensor& other) { return one.shape == other.shape && one.dtype == other.dtype; }

void check_graph(const Graph& graph, const Manifest& manifest) {
  const auto required = std::find_if(std::begin(kRequired), std::end(kRequired), [&](const RequiredTensors& each) { return graph.name == each.graph; });
  check_tensors(graph.inputs, split_words(required->inputs), "input", graph, manifest);
  check_tensors(graph.outputs, split_words(required->outputs), "output", graph, manifest);
  check_companions(graph);
  for (const Tensor& output : graph.outputs)
    for (const Tensor& input : graph.inputs)
      if (output.role == role::kState && input.buffer == output.buffer && !is_alike(input, output))
        refuse("the output " + python_repr(output.name) + " is " + words_of(output) + ", the state that it updates " + words_of(input));
}

// Refuse links that no graph writes, or that are written otherwise.
void check_links(const std::vector<Graph>& graphs) {
  std::map<std::string, Tensor> links;
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.outputs) links[tensor.buffer] = tensor;
  for (const Graph& graph : graphs) {
    for (const Tensor& tensor : graph.inputs) {
      if (tensor.role != role::kLink) continue;
      const auto link = links.find(tensor.buffer);
      if (link != links.end() && is_alike(link->second, tensor)) continue;
      refuse("graph " + python_repr(graph.name) + ": " + python_repr(tensor.name) + " is " + words_of(tensor) + ", written is " +
             (link == links.end() ? "nothing" : words_of(link->second)));
    }
  }
}

// Return the name of a draft's output that the next round reads from this buffer.
std::string drafted_name(const std::string& buffer) {
  for (const NextRoundInput& each : kNextRoundInputs)
    if (buffer == each.buffer) return each.drafted;
  return buffer;
}

// Refuse fields that say otherwise than the inputs of the graphs, which follow from them.
void check_features(const Manifest& manifest) {
  struct Feature {
    const char* field;
    bool is_so;
    const char* input;
  };
  const Feature features[] = {{"decoding", manifest.decoding == decoding::kSampling, names::kUniforms},
                              {"sample", manifest.sample, names::kDraftIds},
                              {"tree", manifest.tree == tree::kDynamic, names::kParents}};
  const std::vector<Graph> graphs = round_only(manifest.graphs);
  for (const Graph& graph : graphs) {
    if (graph.name == graph::kDraft) continue;
    for (const Feature& each : features) {
      const bool has_it = graph.input(each.input);
      if (has_it != each.is_so)
        refuse(std::string(each.field) + ": received " + manifest.json[each.field].repr() + ", but " + python_repr(graph.name) + " has " +
               (has_it ? "an" : "no") + " input " + python_repr(each.input));
    }
    if ((graph.output(names::kNodes) != nullptr) == manifest.is_chain())
      refuse("tree: received " + python_repr(manifest.tree) + ", which 'nodes' of " + python_repr(graph.name) + " contradicts");
  }
  if (graphs.size() < 2) return;
  const Graph& drafting = graphs[graphs.front().name == graph::kVerify ? 1 : 0];
  const std::pair<const char*, bool> read[] = {{names::kParents, manifest.tree == tree::kDynamic}, {names::kDraftIds, manifest.sample}};
  for (const auto& [buffer, is_needed] : read) {
    const std::string name = drafted_name(buffer);
    if (is_needed != (drafting.output(name) != nullptr))
      refuse("graph " + python_repr(drafting.name) + ": " + (is_needed ? "no" : "an") + " output " + python_repr(name));
  }
  check_links(graphs);
}

void check(const Manifest& manifest) {
  check_numbers(manifest);
  check_words(manifest);
  check_planned(manifest);
  check_round(manifest);
  check_source_section(manifest.source, manifest.graphs, manifest.vocabulary_size);
  for (const Graph& graph : manifest.graphs) {
    try {
      check_graph(graph, manifest);
    } catch (const Error& error) {
      refuse("graph " + python_repr(graph.name) + ": " + error.message);
    }
  }
  check_features(manifest);
  check_rings(manifest);
  for (const EngineEntry& engine : manifest.engines) {
    try {
      check_engine(engine, manifest.graphs);
    } catch (const Error& error) {
      refuse("engine " + python_repr(engine.name) + ": " + error.message);
    }
  }
}

}  // namespace

void check_consistency(const Manifest& manifest, const std::string& file) {
  try {
    check(manifest);
  } catch (const Error& error) {
    refuse(file + ": " + error.message);
  }
}

}  // namespace spc
