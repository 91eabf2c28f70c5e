// `speccompile-native`: the commands of a machine that runs bundles, without Python.
#include <string>
#include <vector>

#include "../errors.h"
#include "../words.h"
#include "common.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {

constexpr const char* kHelp = R"(  Run bundles of a target LLM and its drafter, which draft, verify, accept and
  commit by themselves. `speccompile` makes them.
)";

const Command& group() {
  static const Command command = {kProgram,
                                  nullptr,
                                  "[OPTIONS] [COMMAND] [ARGS]...",
                                  kHelp,
                                  {{"--version", "", Takes::kFlag, "Show the version and exit.", 'V'},
                                   {"--quiet", "", Takes::kFlag, "Show no progress on stderr.", 'q'}}};
  return command;
}

void show_help(const std::vector<Subcommand>& commands) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Subcommand& each : commands) lines.emplace_back(each.name, each.summary);
  write_stdout(help_of(group(), lines));
}

const Subcommand& named(const std::vector<Subcommand>& commands, const std::string& name) {
  std::vector<std::string> known;
  std::string list;
  for (const Subcommand& each : commands) {
    if (name == each.name) return each;
    known.push_back(each.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  const std::string nearest = close_match(name, known);
  throw Error(Kind::kUsage, "received the command '" + name + "', expected one of " + list,
              nearest.empty() ? "see " + group().path + " --help" : "did you mean '" + group().path + " " + nearest + "'?");
}

void run_line(const std::vector<std::string>& words) {
  const std::vector<Subcommand> commands = {generate_command(), bench_command(), inspect_command(), serve_command(), transcribe_command()};
  const Arguments options = Arguments::read(group(), words);
  if (options.wanted() == "--version") return write_stdout(group().path + ", version " + kVersion + "\n");
  if (options.wanted() == "--help" || options.rest.empty()) return show_help(commands);
  if (options.has("--quiet")) silence_progress();
  const Subcommand& chosen = named(commands, options.rest[0]);
  const Arguments given = Arguments::read(chosen.command, {options.rest.begin() + 1, options.rest.end()});
  if (!given.wanted().empty()) return write_stdout(help_of(chosen.command));
  given.check(chosen.command);
  chosen.run(given);
}

}  // namespace
}  // namespace spc::cli

int main(int count, char** words) {
  return spc::cli::run([&] { spc::cli::run_line({words + (count > 0), words + count}); });
}
