// Command lines, read as click reads them for Python's commands, and its words for what is wrong with them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../runtime/options.h"

namespace spc::cli {

constexpr const char* kProgram = "speccompile-native";

// What an option takes: kWhole is any whole number, kCount one from 1 on, kChoice one of the words of the metavar [word|word].
enum class Takes { kFlag, kText, kPath, kWhole, kCount, kNumber, kChoice };

struct Option {
  const char* name;
  const char* metavar;  // "" for a flag
  Takes takes;
  const char* help;
  char letter = '\0';  // the short form
  bool is_required = false;
  const char* alias = "";  // another spelling, which is not in the help
};

// Of every command.
constexpr Option kHelp = {"--help", "", Takes::kFlag, "Show this message and exit.", 'h'};

// help: its text, wrapped; options: beside --help. argument: the name of the one that it takes; the program itself has none,
// and leaves what follows its options to the command that they name. second: the name of another argument behind it, null without.
struct Command {
  std::string path;
  const char* argument;
  const char* usage;
  const char* help;
  std::vector<Option> options;
  const char* second = nullptr;
};

// What was given. Options that were not are null, false or empty.
class Arguments {
 public:
  // Throws Error(kUsage) for an option that the command does not have, or that lacks its value.
  static Arguments read(const Command& command, std::vector<std::string> words);
  // The first of --help and --version, "" for neither.
  std::string wanted() const;
  // Throws Error(kUsage) for a value that is no number, a missing argument or option, and for what is left over.
  void check(const Command& command) const;

  bool has(std::string_view name) const { return find(name) != nullptr; }
  const std::string* find(std::string_view name) const;  // the last of several
  std::string text(std::string_view name) const { return has(name) ? *find(name) : ""; }
  std::vector<std::string> all(std::string_view name) const;
  // Those that `check` has seen.
  std::optional<Value> whole(std::string_view name) const;
  std::optional<Value> number(std::string_view name) const;
  int64_t count(std::string_view name, int64_t otherwise) const;

  std::vector<std::string> rest;  // what is no option

 private:
  using Given = std::pair<const Option*, std::string>;

  const Option* take(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed);
  const Option* take_letters(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed);

  std::vector<Given> given_;
};

// As `--help` prints it; commands: (name, a line) of the program's.
std::string help_of(const Command& command, const std::vector<std::pair<std::string, std::string>>& commands = {});

// A number as Python's int() and float() read it. Below zero a whole one comes as a double, as requests have it.
std::optional<Value> read_whole(std::string_view text);
std::optional<double> read_real(std::string_view text);

}  // namespace spc::cli
