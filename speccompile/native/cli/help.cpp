// Text of --help, in click's columns.
#include <algorithm>

#include "options.h"

namespace spc::cli {
namespace {

constexpr size_t kWidth = 78, kWidest = 30;  // of a line; of the first column

using Rows = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t word = text.find_first_not_of(' ', at), end = std::min(text.find(' ', word), text.size());
    const std::string gap = text.substr(at, word - at), added = text.substr(word, end - word);
    if (!line.empty() && line.size() + gap.size() + added.size() > width) {
      lines.push_back(std::move(line));
      line = added;
    } else {
      line += gap + added;
    }
    at = end;
  }
  lines.push_back(std::move(line));
  return lines;
}

std::string columns(const Rows& rows) {
  size_t widest = 0;
  for (const auto& [first, second] : rows) widest = std::max(widest, first.size());
  const size_t column = std::min(widest, kWidest) + 2;
  const std::string indent(column + 2, ' ');
  std::string text;
  for (const auto& [first, second] : rows) {
    text += "  " + first;
    text += first.size() + 2 <= column ? std::string(column - first.size(), ' ') : "\n" + indent;
    const std::vector<std::string> lines = wrapped(second, kWidth - column - 2);
    for (size_t i = 0; i < lines.size(); ++i) text += (i ? indent : "") + lines[i] + "\n";
  }
  return text;
}

}  // namespace

std::string help_of(const Command& command, const Rows& commands) {
  Rows options;
  for (const Option& each : command) {
    const std::string letter = each.letter ? std::string("-") + each.letter + ", " : "";
    options.emplace_back(letter + each.name + (*each.metavar ? " " : "") + each.metavar, each.help);
  }
  options.emplace_back(std::string("-") + kHelp.letter + ", " + kHelp.name, kHelp.help);
  std::string text =
      "Usage: " + path_of(command) + " " + command.usage + "\n\n" + command.help + "\nOptions:\n" + columns(options);
  if (!commands.empty()) text += "\nCommands:\n" + columns(commands);
  return text;
}

}  // namespace spc::cli
