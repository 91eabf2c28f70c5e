#include "prompt_input.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../words.h"
#include "common.h"

namespace spc::cli {
namespace {

constexpr size_t kShown = 40;  // characters of an invalid token id

// Options that give one thing, and its name. The first takes a text, the second a file, the third token ids.
struct Options {
  const char *text, *file, *ids, *name;
};
constexpr Options kPrompt = {"--prompt", "--prompt-file", "--token-ids", "prompt"};
constexpr Options kSource = {"--source", "--source-file", "--source-ids", "source"};

std::string read_text(const std::string& option, const std::string& name) {
  std::string text;
  try {
    text = name == "-" ? read_stdin() : read_file(name);
  } catch (const FileError& error) {
    throw Error(Kind::kPrompt, option + " " + name + ": " + error.reason, "give a file that can be read, or - for stdin");
  }
  remove_byte_order_mark(text);
  const size_t place = first_invalid_utf8(text);
  if (place == std::string::npos) return text;
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[place])));
  throw Error(Kind::kPrompt, option + " " + name + ": byte " + std::to_string(place) + " is " + byte + ", expected UTF-8 text",
              "save the prompt as UTF-8");
}

int64_t token_id(const std::string& option, const std::string& text) {
  const std::optional<Value> value = read_whole(text);
  if (!value)
    throw Error(Kind::kPrompt, option + ": received " + python_repr(first_characters(text, kShown)) + ", expected whole numbers with commas between them",
                "write them as in " + option + " 1,2,3");
  constexpr double kMost = 0x1p62;  // larger ones are refused as well
  return static_cast<int64_t>(std::min(std::max(value->number, -kMost), kMost));
}

TokenIds token_ids(const std::string& option, const std::string& text) {
  TokenIds ids;
  for (const std::string& part : split(text, ',')) ids.push_back(token_id(option, part));
  return ids;
}

std::vector<std::string> given_of(const Arguments& given, const Options& options) {
  std::vector<std::string> found;
  for (const char* each : {options.text, options.file, options.ids})
    if (given.has(each)) found.emplace_back(each);
  return found;
}

Prompt read(const Arguments& given, const Options& options, const std::string& option) {
  const std::string value = given.text(option);
  if (option == options.ids) return token_ids(option, value);
  const bool is_file = option == options.file || value == "-";
  const std::string text = is_file ? read_text(option, value) : value;
  if (text.empty())
    throw Error(Kind::kPrompt, option + (is_file ? " " + value : "") + ": received an empty " + options.name + ", expected text", "give at least one character");
  return text;
}

}  // namespace

bool has_prompt(const Arguments& given) { return !given_of(given, kPrompt).empty(); }

Prompt prompt_of(const Arguments& given) {
  const std::vector<std::string> found = given_of(given, kPrompt);
  if (found.size() != 1)
    throw Error(Kind::kUsage, "received " + (found.empty() ? "no prompt" : joined(found, " and ")) + ", expected one of --prompt, --prompt-file, --token-ids",
                "give exactly one of them");
  if (found[0] == kPrompt.ids && given.has("--chat")) throw Error(Kind::kUsage, "received --chat with --token-ids, expected a text", "leave one of them out");
  return read(given, kPrompt, found[0]);
}

std::optional<Prompt> source_of(const Arguments& given) {
  const std::vector<std::string> found = given_of(given, kSource);
  if (found.size() > 1) throw Error(Kind::kUsage, "received " + joined(found, " and ") + ", expected one source", "give exactly one of them");
  return found.empty() ? std::nullopt : std::optional<Prompt>(read(given, kSource, found[0]));
}

}  // namespace spc::cli
