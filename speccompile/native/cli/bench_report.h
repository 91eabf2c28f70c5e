// A whole benchmark of a bundle (speccompile/measure/bench/run.py, report.py, table.py).
#pragma once

#include <string>

#include "../json.h"
#include "common.h"

namespace spc::cli {

// Open a bundle, generate for every question both ways, and measure what bounds them: the object of `bench --json`.
Json make_report(const Arguments& given);
// The report as people read it in a terminal: lines without the last newline.
std::string write_table(const Json& report);

}  // namespace spc::cli
