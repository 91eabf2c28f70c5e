// `speccompile-native`: the commands of a machine that runs bundles, without Python.
#include <string>
#include <vector>

#include "../errors.h"
#include "../words.h"
#include "common.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {

struct Subcommand {
  const Command& command;
  void (*run)(const Arguments& given);
};
constexpr Subcommand kSubcommands[] = {
    {kGenerate, generate}, {kBench, bench}, {kInspect, inspect}, {kServe, serve}, {kTranscribe, transcribe}};

void show_help() {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Subcommand& each : kSubcommands) lines.emplace_back(each.command.name, each.command.summary);
  write_stdout(help_of(kProgram, lines));
}

const Subcommand& named(const std::string& name) {
  std::vector<std::string> known;
  for (const Subcommand& each : kSubcommands) {
    if (name == each.command.name) return each;
    known.push_back(each.command.name);
  }
  const std::string program = kProgramName, nearest = close_match(name, known);
  std::string meant = elsewhere(kCommandsElsewhere, name);
  if (meant.empty() && !nearest.empty()) meant = program + " " + nearest;
  throw Error(Kind::kUsage, "received the command '" + name + "', expected one of " + joined(known),
              meant.empty() ? "see " + program + " --help" : "did you mean '" + meant + "'?");
}

void run_line(const std::vector<std::string>& words) {
  const Arguments options = Arguments::read(kProgram, words);
  if (options.wanted() == "--version") return write_stdout(path_of(kProgram) + ", version " + kVersion + "\n");
  if (options.wanted() == "--help" || options.rest.empty()) return show_help();
  const auto& [command, run] = named(options.rest[0]);
  const Arguments given = Arguments::read(command, {options.rest.begin() + 1, options.rest.end()});
  if (!given.wanted().empty()) return write_stdout(help_of(command));
  const auto has = [&](const char* name) { return options.has(name) || given.has(name); };
  const bool is_quiet = has("--quiet"), is_verbose = has("--verbose");
  if (is_quiet && is_verbose) throw Error(Kind::kUsage, "received --quiet and --verbose, expected one of them", "see " + path_of(command) + " --help");
  show_from(is_quiet ? Level::kWarning : is_verbose ? Level::kDebug : Level::kInfo);
  given.check(command);
  run(given);
}

}  // namespace
}  // namespace spc::cli

int main(int count, char** words) {
  return spc::cli::run([&] { spc::cli::run_line({words + (count > 0), words + count}); });
}
