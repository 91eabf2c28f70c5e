// `speccompile-native generate`: text from a prompt, as it comes.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "../audio/wav.h"
#include "../constraints/constraint.h"
#include "../errors.h"
#include "../files.h"
#include "../images/decode.h"
#include "../json.h"
#include "../progress.h"
#include "../runtime/documented.h"
#include "../runtime/session.h"
#include "common.h"
#include "constraint_options.h"
#include "exit_codes.h"
#include "generation_output.h"
#include "prompt_input.h"

namespace spc::cli {
namespace {

// Throws Error(kPrompt) for what is no picture. A bundle that sees none refuses pictures later, whatever is in the files.
void add_pictures(Request& request, const std::vector<std::string>& files, const Bundle& bundle) {
  if (static_cast<int64_t>(files.size()) > kMostPictures)
    throw Error(Kind::kPrompt, "received " + std::to_string(files.size()) + " pictures, expected at most " + std::to_string(kMostPictures), "give fewer");
  if (files.empty()) return;  // a prompt without pictures may be truncated
  std::vector<images::GivenPicture>& given = request.images[0];
  for (const std::string& file : files)
    given.push_back({bundle.vision() ? images::read_picture(plain_path(file), "images[" + std::to_string(given.size()) + "]") : nullptr});
}

// The new text; token ids where there is none.
std::string shown(const Json& result) {
  if (result["text"].is_text()) return result["text"].text();
  std::string ids;
  for (const Json& id : result["token_ids"].list()) ids += (ids.empty() ? "" : ",") + id.dump();
  return ids;
}

// Text as it comes, token ids when there is no text; then the summary.
void show(Session& session, bool has_text) {
  for (bool is_going = true; is_going;) {
    is_going = session.step();
    if (!has_text) continue;
    if (const std::string& piece = session.new_text(0); !piece.empty()) write_stdout(piece);
  }
  const Json result = session.result(0);
  write_stdout((has_text ? "" : shown(result)) + "\n");
  log(Level::kInfo, summary(result));
}

// All of them once all have ended.
void show_all(Session& session, bool is_json) {
  while (session.step()) continue;
  const std::string count = std::to_string(session.rows());
  for (size_t row = 0; row < session.rows(); ++row) {
    const Json result = session.result(row);
    if (is_json) {
      write_stdout(documented_fields(result).dump() + "\n");
      continue;
    }
    const std::string number = std::to_string(row + 1);
    log(Level::kInfo, "sequence " + number + ": " + summary(result));
    write_stdout("--- sequence " + number + " of " + count + " ---\n" + shown(result) + "\n");
  }
}

// Load the drafter state of the file, if there is one. Throws Error(kUsage) for a drafter without state.
void begin_kept(const Session& session, const std::string& state, bool reset) {
  session.kept().check();
  const std::string folder = parent_path(state);
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw Error(Kind::kUsage, "--state " + state + ": there is no folder " + folder, "create it, or give another file");
  if (!reset && std::filesystem::exists(state, error)) session.kept().load(state);
}

// Load an adapter NAME=FOLDER, and return its name.
std::string load_adapter(Session& session, const std::string& given) {
  const size_t equals = given.find('=');
  if (equals == std::string::npos || equals + 1 == given.size())
    throw Error(Kind::kUsage, "--adapter " + given + ": received no NAME=FOLDER, expected NAME=FOLDER", "--adapter poet=poet/");
  session.load_adapter(given.substr(0, equals), plain_path(given.substr(equals + 1)));
  return given.substr(0, equals);
}

// Return the file of a session, "" for none.
std::string session_path(const Arguments& given) {
  if (!given.has("--session")) return "";
  if (given.text("--session").empty()) throw Error(Kind::kUsage, "session: received '', expected the path of a file", "leave it out for none");
  return plain_path(given.text("--session"));
}

// Go on from the text of a session, where it is there. Throws Error(kUsage) for several sequences and wrong files.
void go_on(Session& session, const std::string& path, const Value& sequences, const std::string& adapter) {
  check_session(path, static_cast<int64_t>(sequences.number));
  std::error_code error;
  if (std::filesystem::exists(path, error)) session.load(path, adapter, true);
}

}  // namespace

void generate(const Arguments& given) {
  Request request = request_of(given);
  request.source = source_of(given);
  if (given.has("--audio")) request.set_audio(Request::kAll, std::make_shared<const audio::Sound>(audio::read_wav(plain_path(given.text("--audio")))));
  if (has_prompt(given) || !(request.source || request.audio)) request.prompts = {prompt_of(given)};
  for (const char* option : {"--source-language", "--target-language", "--task"})
    if (given.has(option)) request.set_text(setting_of(option), given.text(option));
  request.stop = given.all("--stop");
  if (given.has("--session") && given.has("--image"))
    throw Error(Kind::kUsage, "session " + given.text("--session") + ": received pictures, expected a prompt of text: pictures are not saved in sessions", "leave session out");
  const Value sequences = given.number("--num-return-sequences").value_or(Value::of(uint64_t{1}));
  request.set(Request::kAll, "num_return_sequences", sequences);
  for (const char* option : {"--autoregressive", "--logprobs", "--chat", "--truncate"})
    request.set(Request::kAll, setting_of(option), Value::of(uint64_t{given.has(option)}));
  const bool is_json = given.has("--json");
  if (given.has("--logprobs") && !is_json)
    throw Error(Kind::kUsage, "received --logprobs without --json, expected both", "add --json");
  if (given.has("--reset") && !given.has("--state"))
    throw Error(Kind::kUsage, "received --reset without --state, expected both", "add --state FILE");
  const auto asked = asked_constraint(given);
  const std::shared_ptr<const Bundle> bundle = bundle_of(given, !given.has("--no-verify"));
  add_pictures(request, given.all("--image"), *bundle);
  if (asked) request.constraint = bundle->grammars().compile(asked->first, asked->second);
  Session session(bundle);
  const std::string state = given.has("--state") ? plain_path(given.text("--state")) : "";
  if (given.has("--state")) begin_kept(session, state, given.has("--reset"));
  if (given.has("--adapter")) request.adapter = load_adapter(session, given.text("--adapter"));
  const std::string saved = session_path(given);
  if (given.has("--session")) go_on(session, saved, sequences, request.adapter);
  session.start(request);
  if (is_json || sequences.number != 1)
    show_all(session, is_json);
  else
    show(session, bundle->text() != nullptr);
  if (given.has("--session")) session.save(saved);
  if (given.has("--state")) session.kept().save(state);
}

}  // namespace spc::cli
