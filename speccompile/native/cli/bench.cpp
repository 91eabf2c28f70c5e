// `speccompile-native bench`: speculative beside autoregressive decoding, measured in one run.
#include <string>

#include "../errors.h"
#include "../progress.h"
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

}  // namespace

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

}  // namespace spc::cli
