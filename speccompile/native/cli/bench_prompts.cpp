#include "bench_prompts.h"

#include <algorithm>
#include <cerrno>

#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../words.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {


// Line of a file, for messages.
struct Line {
  const std::string& path;
  size_t number;
  std::string text;

  [[noreturn]] void refuse(const std::string& received, const std::string& expected, const std::string& hint) const {
    throw Error(Kind::kPrompt,
                path + ", line " + std::to_string(number) + ": received " + received + ", expected " + expected, hint);
  }

  std::string shortened() const {
    const std::string whole = trimmed(text), shown = first_characters(whole, static_cast<size_t>(kShownOfLine));
    return shown.size() < whole.size() ? shown + "..." : whole;
  }
};

std::string checked(const std::string& prompt, const Line& line) {
  if (prompt.empty()) line.refuse("an empty prompt", "text", "remove the line or add text");
  if (!is_utf8(prompt))
    line.refuse("text that is not Unicode", "text that UTF-8 can hold",
                "remove the lone surrogate (an escape from \\ud800 to \\udfff without its other half)");
  return prompt;
}

Prompt prompt_of(const Json& data, const Line& line) {
  const Json *prompt = data.find("prompt"), *ids = data.find("token_ids");
  if (prompt && ids) line.refuse("a prompt and token ids", "one of the two", "remove one of the two keys");
  if (prompt && prompt->is_text()) return checked(prompt->text(), line);
  const auto is_id = [](const Json& each) { return each.is_integer() && each.integer() >= 0; };
  if (ids && ids->is_list() && std::all_of(ids->list().begin(), ids->list().end(), is_id)) {
    if (ids->list().empty()) line.refuse("no token ids", "one token id or more", "remove the line or add ids");
    TokenIds found;
    for (const Json& id : ids->list()) found.push_back(id.integer());
    return found;
  }
  line.refuse(line.shortened(), kPromptForms, "write each line as one JSON object with one of the two keys");
}

std::optional<std::string> language_of(const Json& data, const char* name, const Line& line) {
  const Json* const value = data.find(name);
  if (!value) return std::nullopt;
  if (!value->is_text()) line.refuse(std::string(name) + ": " + value->dump(), "the name of a language", "write a name such as \"de\"");
  return value->text();
}

// The question of a line with a source or a sound; a relative path is relative to the file's folder.
Question given_of(const Json& data, const Line& line) {
  const bool is_sound = data.find(names::kAudio) != nullptr;
  if (is_sound && data.find(names::kSource)) line.refuse("audio and source", "one of them", "write them as two lines");
  const char* const key = is_sound ? names::kAudio : names::kSource;
  const Json& value = data[key];
  if (!value.is_text()) line.refuse(std::string(key) + ": " + value.dump(), is_sound ? "the path of a file" : "text", std::string("write it as ") + kGivenForms);
  const std::string text = checked(value.text(), line);
  Question found{{is_sound ? join_path(parent_path(line.path), text) : text}, std::nullopt, key};
  found.source_language = language_of(data, is_sound ? "language" : "source_language", line);
  if (!is_sound) found.target_language = language_of(data, "target_language", line);
  return found;
}

Question question_of(const Line& line) {
  Json data;
  try {
    data = Json::parse(line.text);
  } catch (const JsonError&) {  // no question
  }
  const auto has = [&](const char* key) { return data.find(key) != nullptr; };
  const bool is_other = has("prompt") || has("token_ids") || has("turns") || has("messages");  // beside these the keys say something else
  if (!is_other && (has(names::kSource) || has(names::kAudio))) return given_of(data, line);
  if (!data.find("turns")) return {{prompt_of(data, line)}, std::nullopt};
  const Json::List& turns = data["turns"].list();
  const bool are_texts =
      !turns.empty() && std::all_of(turns.begin(), turns.end(), [](const Json& each) { return each.is_text(); });
  const std::string& category = data["category"].text();
  if (!data.find("question_id") || category.empty() || !are_texts)
    line.refuse(line.shortened(), kQuestionForm, "a question has these keys, and one turn or more");
  Question question{{}, category};
  for (const Json& turn : turns) question.turns.emplace_back(checked(turn.text(), line));
  return question;
}

std::string read_text(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const FileError& error) {
    if (error.number != ENOENT && error.number != EISDIR) refuse_file(path, error);
    const std::string found = error.number == EISDIR ? "it is a folder" : "nothing lies there";
    throw Error(Kind::kPrompt, "received the prompts file '" + path + "', expected a file: " + found,
                std::string("write one prompt a line: ") + kPromptForms);
  }
  remove_byte_order_mark(text);
  const size_t place = first_invalid_utf8(text);
  if (place == std::string::npos) return text;
  const auto before = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n');
  Line{path, static_cast<size_t>(before) + 1, ""}.refuse("bytes that are not UTF-8", "text", "save the file as UTF-8");
}

}  // namespace

std::string Question::group() const {
  if (!category) return kPlainGroup;
  return std::find(std::begin(kMtBench), std::end(kMtBench), *category) != std::end(kMtBench) ? "mt_bench" : *category;
}

std::vector<Question> read_questions(const std::string& given) {
  const std::string path = plain_path(given), text = read_text(path);
  std::vector<Question> questions;
  size_t number = 0;
  for (std::string& each : split(text, '\n')) {
    const Line line{path, ++number, std::move(each)};
    if (!trimmed(line.text).empty()) questions.push_back(question_of(line));
  }
  if (questions.empty())
    throw Error(Kind::kPrompt, path + ": received no prompts, expected one a line",
                std::string("add lines such as ") + kPromptForms);
  return questions;
}

}  // namespace spc::cli
