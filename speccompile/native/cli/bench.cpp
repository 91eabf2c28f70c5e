// `speccompile-native bench`: speculative beside autoregressive decoding, measured in one run.
#include <string>

#include "../errors.h"
#include "../progress.h"
#include "../words.h"
#include "bench_report.h"
#include "exit_codes.h"

namespace spc::cli {
namespace {

// Other tokens fail an exact bundle.
void check(const Measurements& measured) {
  if (!measured.bundle->exact() || !measured.differences || measured.differences->empty()) return;
  const std::string numbers = comma_separated(*measured.differences, [](const Divergence& each) { return std::to_string(each.prompt); });
  throw Error(Kind::kFailed,
              "expected the same tokens both ways, received others on " + std::to_string(measured.differences->size()) +
                  " of " + std::to_string(measured.cases.size()) + " prompts: " + numbers,
              "`speccompile prove` shows by what margin");
}

}  // namespace

void bench(const Arguments& given) {
  if (given.has("--html"))
    throw Error(Kind::kUsage, "received --html " + given.text("--html") + ", but this command writes no pages",
                "`speccompile bench` does");
  const Measurements measured = measure_all(given);
  if (given.has("--json")) {
    log(Level::kInfo, write_table(measured));
    write_stdout(to_json(measured).dump(2) + "\n");
  } else {
    write_stdout(write_table(measured) + "\n");
  }
  check(measured);
}

}  // namespace spc::cli
