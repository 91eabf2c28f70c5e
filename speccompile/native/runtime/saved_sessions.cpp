#include "saved_sessions.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"

namespace spc {
namespace {

constexpr size_t kShown = 160;  // characters of a fact
constexpr const char* kTargetWeights = "target weights";
const std::string kSessionNote = "note.";  // beginning of names of notes

const char* tokens_dtype() { return dtype_named(dtype::kInt64)->safetensors; }

SavedSessions::Notes notes_of(const SessionFile& file) {
  SavedSessions::Notes notes;
  for (const auto& [name, text] : file.metadata)
    if (starts_with(name, kSessionNote)) notes[name.substr(kSessionNote.size())] = text;
  return notes;
}

bool is_target(const std::string& buffer) { return starts_with(buffer, std::string(component::kTarget) + "."); }

const std::string& hash_of(const OpenedBundle& opened, const std::string& file) {
  const FileRecord* const found = opened.hashes.find(file);
  if (!found) opened.path(file);  // throws
  return found->blake3;
}

// The files of a component's weights, with their hashes.
std::string weights_of(const OpenedBundle& opened, const std::string& part) {
  std::map<std::string, std::string> named;
  for (const auto& [path, record] : opened.hashes.files)
    if (starts_with(path, "graphs/") && starts_with(name_of(path), part + ".")) named[name_of(path)] = record.blake3;
  std::vector<std::string> words;
  for (const auto& [name, hash] : named) words.push_back(name + " " + hash);
  return joined(words, ",");
}

// The hashes of the target's files, the config's too, and what the recipe says of the target.
Json checkpoint_of(const OpenedBundle& opened) {
  Json files{Json::Object{}}, asked{Json::Object{}};
  for (const auto& [name, hashed] : opened.lock["inputs"]["target"]["files"].object())
    if (std::none_of(std::begin(kNoModel), std::end(kNoModel), [&, &name = name](const char* begin) { return starts_with(name, begin); })) files.set(name, hashed);
  for (const auto& [key, value] : opened.manifest.json["plan"]["target"].object())
    if (std::find(std::begin(kUnreadKeys), std::end(kUnreadKeys), key) == std::end(kUnreadKeys)) asked.set(key, value);
  return Json::List{files, asked};
}

std::string cache_dtype(const std::vector<Graph>& graphs) {
  std::string found = kFloatCache;
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.inputs)
      if (is_target(tensor.buffer) && is_scale(tensor.buffer) && found != kInt4Values)
        found = tensor.shape.back().size == 2 ? kInt4Values : kInt8Cache;
  return found;
}

std::string precision_of(const EngineEntry& entry, const std::string& part) {
  for (const auto& [name, word] : entry.precision)
    if (name == part) return word;
  return "";
}

std::string spelled(const Json& fact) { return fact.dump(-1, true); }

std::string shortened(const std::string* value) {
  if (!value) return "missing";
  const std::string shown = first_characters(*value, kShown);
  return python_repr(shown.size() < value->size() ? shown + ".." : shown);
}

[[noreturn]] void refuse(const std::string& message, const std::string& hint = "continue it with the bundle that wrote it, or give another file") {
  throw Error(Kind::kUsage, message, hint);
}

// A number in the metadata of a file.
template <class IsOne>
int64_t number_of(const SessionFile& file, const std::string& name, IsOne is_one, const std::string& expected, const std::string& path) {
  const std::string* const text = file.text(name);
  const bool is_number = text && !text->empty() && text->size() < 12 && text->find_first_not_of("0123456789") == std::string::npos;
  if (is_number && is_one(std::stoll(*text))) return std::stoll(*text);
  refuse(path + ": received " + name + " " + python_repr(first_characters(text ? *text : "", 20)) + ", expected " + expected, "give another file");
}

}  // namespace

SessionKey SessionKey::of(const Bundle& bundle) {
  const OpenedBundle& opened = bundle.opened();
  const EngineEntry& entry = bundle.entry();
  std::string weights = weights_of(opened, component::kTarget);
  if (weights.empty()) {  // in the graphs themselves
    std::vector<std::string> files, hashes;
    for (const auto& each : entry.files) files.push_back(each.second);
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) hashes.push_back(hash_of(opened, file));
    weights = joined(hashes, ",");
  }
  const std::string& kernels = bundle.kernels();
  const bool has_kernels = !kernels.empty() && kernels != kNoKernels;
  const std::string here = entry.name + " on " + processor().repr() + " with " + (kernels.empty() ? "its own kernels" : kernels);
  Json::List graphs;
  for (const char* const graph : {graph::kDraft, graph::kStep})
    if (entry.has(graph)) graphs.push_back(hash_of(opened, entry.file(graph)));
  return {{{"contract", std::to_string(kContract)},
           {"version", kVersion},
           {"build", spelled(opened.lock["versions"])},
           {kTargetWeights, weights},
           {"target", spelled(Json::List{checkpoint_of(opened), precision_of(entry, component::kTarget)})},
           {"cache.dtype", cache_dtype(entry.graphs)},
           {kSessionSliding, RingReach(opened.manifest).words()},
           {"max_length", std::to_string(bundle.manifest().max_length)},
           {"tokenizer", bundle.tokenizer_hash()},
           {"vocabulary", std::to_string(bundle.manifest().vocabulary_size)},
           {"machine", bundle.is_invariant() && has_kernels ? "any" : here}},
          spelled(Json::List{opened.manifest.json["plan"]["drafter"], precision_of(entry, component::kDrafter),
                             weights_of(opened, component::kDrafter), graphs})};
}

SessionKey::Facts SessionKey::of_adapter(const std::string& adapter) const {
  Facts facts = target;
  for (auto& [name, value] : facts)
    if (!adapter.empty() && name == kTargetWeights) value += " with " + adapter;
  return facts;
}

void check_session(const std::string& path, int64_t sequences) {
  if (sequences != 1)
    refuse("session " + path + ": received " + std::to_string(sequences) + " sequences, expected one sequence that runs alone", "ask for one sequence by itself, or leave the session out");
  const std::string folder = parent_path(path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) refuse("session " + path + ": received a folder, expected a file", "give " + join_path(path, "text.session"));
  if (!std::filesystem::is_directory(folder, error)) refuse("session " + path + ": there is no folder " + folder, "create it, or give another file");
  if (access(folder.c_str(), W_OK) != 0)
    refuse("session " + path + ": nothing may be written in " + folder, "allow it to be written, or give another file");
}

SavedSessions::SavedSessions(DecodeLoop& loop, const Manifest& manifest, SessionKey key)
    : loop_(loop),
      manifest_(manifest),
      key_(std::move(key)),
      target_moves_on_(has_recurrent_states(manifest.graphs, component::kTarget)),
      drafter_moves_on_(has_recurrent_states(manifest.graphs, component::kDrafter)) {
  for (const SlotStates::State& state : loop.states().all())
    if (state.buffer == kEndsState) ends_ = *std::max_element(state.line.begin(), state.line.end());
}

void SavedSessions::save(const std::string& path) {
  if (!loop_.left || loop_.left->tokens.empty())
    refuse(path + ": there is no session to save: the last use of this bundle was no generation of one prompt", "generate from one prompt before");
  if (!loop_.left->source.empty())
    refuse(path + ": the latest generation has read a source, which its states depend on: sessions do not save it", "generate again from the source");
  if (std::any_of(loop_.left->tokens.begin(), loop_.left->tokens.end(), [](int64_t id) { return id < 0; }))
    refuse(path + ": the latest generation holds pictures, expected text alone: sessions do not save pictures", "generate from a prompt of text before");
  write_session(path, content(path, *loop_.left));
}

SessionFile SavedSessions::content(const std::string& path, SlotContent left, const Notes& notes) {
  if (left.tokens.empty()) refuse(path + ": there is no session to save", "generate from one prompt before");
  if (!is_at_end(left)) left = read_again(left);
  if (drafter_moves_on_ && left.drafter_position != left.drafter_length) left.drafter_length = 0;
  const auto size = static_cast<int64_t>(left.tokens.size());
  SessionFile file;
  file.add(kSessionTokens, tokens_dtype(), {size}, std::string(reinterpret_cast<const char*>(left.tokens.data()), left.tokens.size() * sizeof(int64_t)));
  for (const SlotStates::State& state : loop_.states().all()) {
    if (!is_target(state.buffer) && !left.drafter_length) continue;
    const Shape part = part_of(state, size, left.drafter_length);
    file.add(state.buffer, dtype_named(state.dtype)->safetensors, part, loop_.states().read(state, left.slot, part));
  }
  for (const auto& [name, fact] : key_.of_adapter(left.adapter_key)) file.metadata[name] = fact;
  file.metadata[kSessionDrafter] = key_.drafter;
  file.metadata[kSessionDrafterLength] = std::to_string(left.drafter_length);
  if (!left.adapter_key.empty()) file.metadata[kSessionAdapter] = left.adapter_key;
  if (loop_.rings().has_rings()) file.metadata[kSessionWritten] = std::to_string(left.written);
  for (const auto& [name, text] : notes) file.metadata[kSessionNote + name] = text;
  return file;
}

std::string SavedSessions::identity(const std::string& adapter) const {
  std::string found;
  for (const auto& [name, fact] : key_.of_adapter(adapter)) found += name + " " + fact + "\n";
  return found + key_.drafter;
}

TokenIds SavedSessions::load(const std::string& path, const std::optional<std::string>& adapter, bool is_replaced) {
  const SessionFile file = read(path);
  if (const Notes lost = notes_of(file); is_replaced && !lost.empty()) {
    const std::string names = comma_separated(lost, [](const auto& each) { return each.first; });
    refuse(path + ": received a session with the notes " + names + ", as a chat writes them, expected one of a single prompt: the generation would replace the file",
           "give another file, or go on with `speccompile chat`");
  }
  loop_.resume = restore(path, file, 0, adapter);
  return loop_.resume->tokens;
}

SavedSessions::Start SavedSessions::start(const std::string& path) const {
  const SessionFile file = read_start(path, sizeof(int64_t) * static_cast<size_t>(manifest_.max_length));
  check_key(file, path);
  TokenIds tokens = tokens_of(file, path);
  const int64_t written = written_of(file, static_cast<int64_t>(tokens.size()), path);
  const std::string *const drafter = file.text(kSessionDrafter), *const adapter = file.text(kSessionAdapter);
  return {std::move(tokens), written, drafter && *drafter == key_.drafter, adapter ? *adapter : "", notes_of(file)};
}

SessionFile SavedSessions::read(const std::string& path, bool trusted) const {
  size_t most = sizeof(int64_t) * static_cast<size_t>(manifest_.max_length);
  for (const SlotStates::State& state : loop_.states().all()) most += state.line_bytes();
  return read_session(path, most, trusted);
}

SlotContent SavedSessions::restore(const std::string& path, const SessionFile& file, int64_t slot, const std::optional<std::string>& adapter) {
  const SlotStates& states = loop_.states();
  check_key(file, path);
  const std::string* const found = file.text(kSessionAdapter);
  const std::string theirs = found ? *found : "";
  if (adapter && *adapter != theirs)
    refuse(path + ": received a session with the adapter " + (theirs.empty() ? "none" : theirs) + ", expected " +
               (adapter->empty() ? "none" : *adapter) + ", as the generation has",
           "continue it with its adapter, or give another file");
  const TokenIds tokens = tokens_of(file, path);
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t length = drafter_length_of(file, size, path), end = written_of(file, size, path);
  std::vector<std::pair<const SlotStates::State*, std::pair<Shape, std::string_view>>> written;
  for (const SlotStates::State& state : states.all()) {
    if (!is_target(state.buffer) && !length) continue;
    const Shape part = part_of(state, size, length);
    written.push_back({&state, {part, checked(file, state, part, path)}});
  }
  loop_.left.reset();  // should the engine fail
  loop_.resume.reset();
  for (const auto& [state, values] : written) states.write(*state, slot, values.first, values.second);
  return {tokens, length, size, length, slot, 0, theirs, end};
}

// Read a text whose last round has moved recurrent states beyond it, and return what is held then.
SlotContent SavedSessions::read_again(const SlotContent& content) {
  TokenIds tokens = content.tokens;
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(manifest_.max_length - 1)));
  Options one;
  one.max_new_tokens = 1;
  Rows rows;
  rows.emplace_back(tokens, one, SamplingParams{}, manifest_.max_length, std::vector<int64_t>{}, nullptr, std::vector<std::string>{});
  rows.back().adapter = content.adapter;
  rows.back().adapter_key = content.adapter_key;
  const auto seconds = loop_.seconds;  // the caller's generation is told after its session is saved
  const auto reused = loop_.reused;
  loop_.begin(rows, false, false);
  while (rows.back().is_active()) loop_.step();
  loop_.seconds = seconds;
  loop_.reused = reused;
  return loop_.left.value();
}

// The part of a line that a session holds: the rows of read tokens, or all of a recurrent state.
Shape SavedSessions::part_of(const SlotStates::State& state, int64_t tokens, int64_t drafter_length) const {
  Shape part = state.line;
  if (is_recurrent_state(state.buffer) || (part.size() != 1 && part.size() != 3)) return part;
  int64_t& rows = part[part.size() == 1 ? 0 : 1];
  int64_t count = is_target(state.buffer) ? tokens : drafter_length;
  // of a drafter with several tokens for one of the target
  if (part.size() == 3 && ends_ && is_own_cache(state.buffer)) count *= rows / ends_;
  rows = std::min(rows, count);
  return part;
}

void SavedSessions::check_key(const SessionFile& file, const std::string& path) const {
  const std::string* const adapter = file.text(kSessionAdapter);
  for (const auto& [name, ours] : key_.of_adapter(adapter ? *adapter : "")) {
    const std::string* theirs = file.text(name);
    const std::string full = kFullCaches;
    if (!theirs && name == kSessionSliding) theirs = &full;  // sessions of versions without rings do not name them
    if (!theirs || *theirs != ours)
      refuse(path + ": received a session with " + name + " " + shortened(theirs) + ", expected " + shortened(&ours) + ", as this bundle has");
  }
}

TokenIds SavedSessions::tokens_of(const SessionFile& file, const std::string& path) const {
  const SessionFile::Tensor* const found = file.find(kSessionTokens);
  const int64_t size = manifest_.vocabulary_size, most = manifest_.max_length - 1;
  TokenIds tokens;
  if (found && found->dtype == tokens_dtype() && found->shape.size() == 1) {
    tokens.resize(found->values.size() / sizeof(int64_t));
    std::memcpy(tokens.data(), found->values.data(), found->values.size());
  }
  if (tokens.empty() || std::any_of(tokens.begin(), tokens.end(), [size](int64_t id) { return id < 0 || id >= size; }))
    refuse(path + ": expected token ids from 0 to " + std::to_string(size - 1) + " in " + kSessionTokens, "give another file");
  if (static_cast<int64_t>(tokens.size()) > most)
    refuse(path + ": this session has " + std::to_string(tokens.size()) + " tokens, expected at most " + std::to_string(most) +
               ", the bundle's capacity less 1",
           "build the bundle with a larger cache.max_length");
  return tokens;
}

// The number of tokens that the drafter has read; 0, with a note, in a session with another drafter.
int64_t SavedSessions::drafter_length_of(const SessionFile& file, int64_t tokens, const std::string& path) const {
  const std::string* const drafter = file.text(kSessionDrafter);
  if (!drafter || *drafter != key_.drafter) {
    warn("note: " + path + " was written with another drafter: this one reads its text again");
    return 0;
  }
  const auto is_one = [tokens](int64_t number) { return number <= tokens; };
  return number_of(file, kSessionDrafterLength, is_one, "0 to " + std::to_string(tokens), path);
}

// The end of the positions whose rows a file's rings have; 0 without rings.
int64_t SavedSessions::written_of(const SessionFile& file, int64_t tokens, const std::string& path) const {
  const RingReach& rings = loop_.rings();
  if (!rings.has_rings()) return 0;
  const std::string size = std::to_string(tokens);
  const auto is_one = [&](int64_t number) { return rings.may_end(number, tokens); };
  return number_of(file, kSessionWritten, is_one, "a position from " + size + " on whose rows leave those that " + size + " tokens need", path);
}

// The values of a part of a state's line that a file has.
std::string_view SavedSessions::checked(const SessionFile& file, const SlotStates::State& state, const Shape& part, const std::string& path) const {
  const SessionFile::Tensor* const found = file.find(state.buffer);
  const std::string dtype = dtype_named(state.dtype)->safetensors;
  if (found && found->dtype == dtype && found->shape == part) return found->values;
  const std::string received = found ? found->dtype + " " + list_of(found->shape).repr() : "nothing [0]";
  refuse(path + ": received " + received + " for " + state.buffer + ", expected " + dtype + " " + list_of(part).repr() + ", as this bundle's states are");
}

}  // namespace spc
