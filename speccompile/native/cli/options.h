// Command lines, read as click reads them for Python's commands, and click's words for errors in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../runtime/options.h"
#include "command_table.h"

namespace spc::cli {

// Return what to write instead of a word of another program, "" for other words.
template <size_t Size>
std::string elsewhere(const Elsewhere (&table)[Size], std::string_view word) {
  for (const Elsewhere& each : table)
    if (word == each.word) return each.ours;
  return "";
}

// Return what a command is called by: "speccompile-native generate".
std::string path_of(const Command& command);

// Parsed arguments. Options that are absent are null, false or empty.
class Arguments {
 public:
  // Throws Error(kUsage) for an option that the command does not have, or that lacks its value.
  static Arguments read(const Command& command, std::vector<std::string> words);
  // The first of --help and --version, "" for neither.
  std::string wanted() const;
  // Throws Error(kUsage) for a value that is no number, a missing argument or option, and for what is left over.
  void check(const Command& command) const;

  bool has(std::string_view name) const { return last(name) != nullptr; }
  std::string text(std::string_view name) const { return has(name) ? last(name)->second : ""; }  // the last of several
  std::vector<std::string> all(std::string_view name) const;
  // A number that `check` has seen, and a whole one of those.
  std::optional<Value> number(std::string_view name) const;
  int64_t count(std::string_view name, int64_t otherwise) const;

  std::vector<std::string> rest;  // arguments that are no options

 private:
  using Given = std::pair<const Option*, std::string>;

  const Given* last(std::string_view name) const;
  const Option* take(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed);
  const Option* take_letters(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed);

  std::vector<Given> given_;
};

// Return the text of `--help`. commands: (name, a line) of the program's.
std::string help_of(const Command& command, const std::vector<std::pair<std::string, std::string>>& commands = {});

// A number as Python's int() and float() read it. Below zero a whole one comes as a double, as requests have it.
std::optional<Value> read_whole(std::string_view text);
std::optional<double> read_real(std::string_view text);
// Return a text that `read_whole` reads as Python writes its number: "-7" of " -00_7".
std::string plain_whole(std::string_view text);

}  // namespace spc::cli
