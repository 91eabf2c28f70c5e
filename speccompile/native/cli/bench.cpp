// `speccompile-native bench`: speculative beside autoregressive decoding, measured in one run.
#include <string>

#include "../errors.h"
#include "../progress.h"
#include "bench_help.h"
#include "bench_report.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {

// Other tokens fail an exact bundle.
void check(const Json& report) {
  const Json::List& differences = report["differences"].list();
  if (!report["exact"].boolean() || differences.empty()) return;
  std::string numbers;
  for (const Json& each : differences) numbers += (numbers.empty() ? "" : ", ") + each["prompt"].dump();
  throw Error(Kind::kFailed,
              "expected the same tokens both ways, received others on " + std::to_string(differences.size()) + " of " +
                  report["prompts"].dump() + " prompts: " + numbers,
              "`speccompile prove` shows by what margin");
}

void bench(const Arguments& given) {
  if (given.has("--html"))
    throw Error(Kind::kUsage, "received --html " + given.text("--html") + ", but this command writes no pages",
                "`speccompile bench` does");
  const Json report = make_report(given);
  if (given.has("--json")) {
    log(Level::kInfo, write_table(report));
    write_stdout(report.dump(2) + "\n");
  } else {
    write_stdout(write_table(report) + "\n");
  }
  check(report);
}

}  // namespace

Subcommand bench_command() {
  std::vector<Option> before = {
      {"--prompts", "FILE", Takes::kPath, "What to time.  [required]"},
      {"--max-new-tokens", "INTEGER RANGE", Takes::kCount, "At most this many.  [default: 128; x>=1]", 'n', false, "--max-tokens"},
      {"--repeats", "INTEGER RANGE", Takes::kCount, "Generations a prompt and way.  [default: 3; x>=1]"},
      {"--threads", "INTEGER RANGE", Takes::kCount, "Threads; by default one a core that this process may use.  [x>=1]"},
      {"--engine", "NAME", Takes::kText, "Engine of the bundle; by default the first that can run here."},
      {"--onnxruntime", "FILE", Takes::kText, kOnnxruntimeHelp},
      {"--fixed-draft-length", "", Takes::kFlag, "Draft in full in every round, whether it pays or not."},
  };
  before[0].is_required = true;
  const std::vector<Option> behind = {
      {"--json", "", Takes::kFlag, "Print one JSON object."},
      {"--html", "FILE", Takes::kPath, "Refused: `speccompile bench` writes pages with plots."},
  };
  return {"bench",
          "Measure speculative beside autoregressive decoding.",
          {std::string(kProgram) + " bench", "BUNDLE", "[OPTIONS] BUNDLE", kBenchHelp, with_sampling(before, behind)},
          bench};
}

}  // namespace spc::cli
