// Prompt files, one JSON object a line: prompts, or questions with turns (speccompile/bundle/prompts.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../runtime/options.h"

namespace spc::cli {

constexpr const char* kGivenForms = R"({"source": "text"} or {"audio": "talk.wav", "language": "en"})";  // of lines for targets with an encoder

// Turns of one conversation. Each continues it; a prompt is a single one, and has no category. given: kind of the only turn:
// a prompt, a source, or the path of a sound (audio), each with the languages that its line names.
struct Question {
  std::vector<Prompt> turns;
  std::optional<std::string> category;
  std::string given = "prompt";
  std::optional<std::string> source_language = {}, target_language = {};

  std::string group() const;
};

// In the order of the file. Throws Error(kPrompt), with the line's number, for a file that is missing, empty or not in this
// form.
std::vector<Question> read_questions(const std::string& path);

}  // namespace spc::cli
