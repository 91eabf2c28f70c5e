#include "source_section.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "../errors.h"
#include "../words.h"

namespace spc {
namespace {

[[noreturn]] void refuse(const std::string& problem) { throw Error(Kind::kBundle, problem, "build the bundle again with this speccompile"); }

[[noreturn]] void refuse_value(const std::string& where, const char* expected, const Json& value) {
  refuse(where + ": expected " + expected + ", got " + value.repr());
}

std::vector<std::string> sorted_names(const Json& data) {
  std::vector<std::string> found;
  for (const Json::Member& each : data.object()) found.push_back(each.first);
  std::sort(found.begin(), found.end());
  return found;
}

int64_t number(const Json& section, const char* name, const std::string& where, int64_t least) {
  const Json& value = section[name];
  if (!value.is_integer() || value.integer() < least) refuse_value(where + ": " + name, ("a number from " + std::to_string(least) + " on").c_str(), value);
  return value.integer();
}

std::optional<int64_t> optional_token(const Json& section, const char* name, const std::string& where) {
  if (section[name].is_null()) return std::nullopt;
  if (!section[name].is_integer()) refuse_value(where + ": " + name, "token ids", section[name]);
  return section[name].integer();
}

std::vector<int64_t> tokens(const Json& section, const char* name, const std::string& where) {
  std::vector<int64_t> found;
  const Json& list = section[name];
  if (!list.is_list() || !std::all_of(list.list().begin(), list.list().end(), [](const Json& each) { return each.is_integer(); }))
    refuse_value(where + ": " + name, "token ids", list);
  for (const Json& each : list.list()) found.push_back(each.integer());
  return found;
}

std::map<std::string, int64_t> named_tokens(const Json& section, const char* name, const std::string& where, const char* expected) {
  std::map<std::string, int64_t> found;
  const Json& object = section[name];
  if (!object.is_object()) refuse_value(where + ": " + name, expected, object);
  for (const auto& [key, token] : object.object()) {
    if (!token.is_integer()) refuse_value(where + ": " + name, expected, object);
    found[key] = token.integer();
  }
  return found;
}

AudioSection read_audio(const Json& data, const std::string& where) {
  std::vector<std::string> fields(std::begin(audio_field::kAll), std::end(audio_field::kAll));
  std::sort(fields.begin(), fields.end());
  if (const std::vector<std::string> found = sorted_names(data); found != fields)
    refuse(where + ": expected what a target hears and writes, got " + (data.is_object() ? joined(found) : data.python_type()));
  AudioSection made;
  const std::pair<const char*, int64_t AudioSection::*> sizes[] = {
      {audio_field::kSamplingRate, &AudioSection::sampling_rate}, {audio_field::kWindow, &AudioSection::window}, {audio_field::kHop, &AudioSection::hop},
      {audio_field::kMels, &AudioSection::mels},                   {audio_field::kFrames, &AudioSection::frames}};
  for (const auto& [name, size] : sizes) {
    made.*size = number(data, name, where, 1);
    if (made.*size >= kMostAudioSize) refuse_value(where + ": " + name, "a number from 1 on", data[name]);
  }
  made.suppressed = tokens(data, audio_field::kSuppressed, where);
  made.begin_suppressed = tokens(data, audio_field::kBeginSuppressed, where);
  made.prompt = tokens(data, audio_field::kPrompt, where);
  made.tasks = named_tokens(data, audio_field::kTasks, where, "token ids");
  made.no_timestamps = optional_token(data, audio_field::kNoTimestamps, where);
  made.max_initial_timestamp = optional_token(data, audio_field::kMaxInitialTimestamp, where);
  made.previous = optional_token(data, audio_field::kPrevious, where);
  return made;
}

// All token ids of a section.
std::set<int64_t> tokens_of(const SourceSection& section) {
  std::set<int64_t> found = {section.start_token_id, section.forced_bos_token_id.value_or(0)};
  for (const auto& each : section.languages) found.insert(each.second);
  if (!section.audio) return found;
  const AudioSection& audio = *section.audio;
  for (const auto& each : audio.tasks) found.insert(each.second);
  for (const auto* list : {&audio.suppressed, &audio.begin_suppressed, &audio.prompt}) found.insert(list->begin(), list->end());
  for (const auto* each : {&audio.no_timestamps, &audio.previous}) found.insert(each->value_or(0));
  return found;
}

bool is_cross_state(const std::string& buffer) {
  const std::string dotted = "." + buffer + ".";
  return std::any_of(std::begin(kCrossKinds), std::end(kCrossKinds), [&](const std::string& kind) {
    return dotted.find("." + kind + ".") != std::string::npos || dotted.find("." + kind + kScaleSuffix + ".") != std::string::npos;
  });
}

std::vector<Tensor> without_states(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found), [](const Tensor& tensor) { return tensor.role != role::kState; });
  return found;
}

std::string names_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> found;
  for (const Tensor& tensor : tensors) found.push_back(tensor.name);
  return joined(found);
}

std::string shape_of(const Tensor& tensor) {
  Json::List sizes;
  for (const Dimension& size : tensor.shape) sizes.push_back(size.to_json());
  return Json(sizes).repr();
}

std::string names_and_shapes_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> found;
  for (const Tensor& tensor : tensors) found.push_back(tensor.name + " " + shape_of(tensor));
  return joined(found);
}

bool has_sizes(const Tensor& tensor, const std::vector<int64_t>& sizes) {
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (tensor.shape.size() != sizes.size() + 1 || !tensor.shape[axis + 1].width.empty() || tensor.shape[axis + 1].size != sizes[axis]) return false;
  return true;
}

// Refuse an encoder that reads something else than the section says.
void check_inputs(const SourceSection& section, const Graph& graph) {
  const std::vector<Tensor> read = without_states(graph.inputs);
  const std::string wanted = section.audio ? names::kAudio : names::kSource, named = "graph " + python_repr(graph.name);
  if (read.size() != 1 || read[0].name != wanted || read[0].role != role::kIo) refuse(named + ": reads " + names_of(read) + ", expected " + wanted);
  if (!section.audio) return;
  const AudioSection& audio = *section.audio;
  if (!has_sizes(read[0], {audio.mels, audio.frames}))
    refuse(named + ": audio is " + shape_of(read[0]) + ", source.audio " + std::to_string(audio.mels) + " x " + std::to_string(audio.frames));
  if (audio.frames != kFramesPerRow * section.max_length)
    refuse("source.max_length: " + std::to_string(section.max_length) + " rows of " + std::to_string(audio.frames) + " frames");
}

// Refuse a graph without an encoder that reads other states than the first graph's encoder writes.
void check_shared(const SourceSection& section, const Graph& graph, const Graph& first) {
  const std::vector<Tensor> read = without_states(graph.inputs), written = without_states(first.outputs);
  const auto is_same = [](const Tensor& one, const Tensor& other) {
    return one.name == other.name && one.dtype == other.dtype && one.shape == other.shape && one.buffer == other.buffer && one.role == other.role;
  };
  const std::string named = "graph " + python_repr(graph.name);
  if (graph.name == first.name || read.empty() || !std::equal(read.begin(), read.end(), written.begin(), written.end(), is_same))
    refuse(named + ": reads " + names_and_shapes_of(read) + ", but " + python_repr(first.name) + " writes " + (written.empty() ? "nothing else" : names_and_shapes_of(written)));
  if (read[0].shape.size() < 2 || read[0].shape[1] != Dimension{section.max_length, ""})
    refuse(named + ": " + (read[0].shape.size() < 2 ? "0" : read[0].shape[1].to_json().dump()) + " rows, source.max_length is " + std::to_string(section.max_length));
}

}  // namespace

std::optional<int64_t> AudioSection::first_timestamp(int64_t vocabulary_size) const {
  if (!no_timestamps || *no_timestamps + 1 >= vocabulary_size) return std::nullopt;
  return *no_timestamps + 1;
}

SourceSection SourceSection::from_json(const Json& data, const std::string& where) {
  std::vector<std::string> found = sorted_names(data);
  found.erase(std::remove(found.begin(), found.end(), names::kAudio), found.end());
  if (!std::equal(found.begin(), found.end(), std::begin(source_field::kAll), std::end(source_field::kAll)))
    refuse(where + ": expected the fields " + joined({std::begin(source_field::kAll), std::end(source_field::kAll)}) + ", got " +
           (data.is_object() ? joined(sorted_names(data)) : data.python_type()));
  SourceSection made;
  made.max_length = number(data, source_field::kMaxLength, where, 1);
  made.start_token_id = number(data, source_field::kStartTokenId, where, 0);
  if (!data[source_field::kForcedBosTokenId].is_null()) made.forced_bos_token_id = number(data, source_field::kForcedBosTokenId, where, 0);
  made.languages = named_tokens(data, source_field::kLanguages, where, "names and token ids");
  if (!data[source_field::kLanguageIsStart].is_bool()) refuse_value(where + ": " + source_field::kLanguageIsStart, "true or false", data[source_field::kLanguageIsStart]);
  made.language_is_start = data[source_field::kLanguageIsStart].boolean();
  if (data.find(names::kAudio)) made.audio = read_audio(data[names::kAudio], where + ": " + names::kAudio);
  return made;
}

bool is_encoder(const Graph& graph) { return graph.name == graph::kEncodeSource || graph.name == graph::kEncodeDraftSource; }

std::vector<Graph> round_only(const std::vector<Graph>& graphs) {
  std::vector<Graph> found;
  std::copy_if(graphs.begin(), graphs.end(), std::back_inserter(found), [](const Graph& graph) { return !is_encoder(graph); });
  return found;
}

void check_source_section(const std::optional<SourceSection>& section, const std::vector<Graph>& graphs, int64_t vocabulary_size) {
  const auto first = std::find_if(graphs.begin(), graphs.end(), [](const Graph& graph) { return graph.name == graph::kEncodeSource; });
  std::vector<std::string> names;
  for (const Graph& graph : graphs) names.push_back(graph.name);
  if (section.has_value() != (first != graphs.end())) refuse(std::string("source: ") + (section ? "a section" : "none") + ", but graphs are " + joined(names));
  if (!section) return;
  const std::set<int64_t> tokens = tokens_of(*section);
  if (*tokens.begin() < 0 || *tokens.rbegin() >= vocabulary_size)
    refuse("source: token ids " + Json(Json::List(tokens.begin(), tokens.end())).repr() + ", expected ids below " + std::to_string(vocabulary_size));
  std::vector<Graph> encoders;
  for (const char* const name : {graph::kEncodeSource, graph::kEncodeDraftSource})
    std::copy_if(graphs.begin(), graphs.end(), std::back_inserter(encoders), [&](const Graph& graph) { return graph.name == name; });
  for (const Graph& graph : encoders) {
    if (graph.input(names::kEncoded)) {
      check_shared(*section, graph, *first);
    } else {
      check_inputs(*section, graph);
    }
    for (const Tensor& state : graph.outputs) {
      const std::string named = "graph " + python_repr(graph.name) + ": ", output = python_repr(state.name);
      if (state.role != role::kState) continue;
      if (!is_cross_state(state.buffer)) refuse(named + "the output " + output + " holds no rows of a source");
      if (state.shape.size() != 4 || state.shape[2] != Dimension{section->max_length, ""})
        refuse(named + output + " has " + (state.shape.size() < 3 ? "0" : state.shape[2].to_json().dump()) + " rows, source.max_length is " + std::to_string(section->max_length));
    }
  }
}

}  // namespace spc
