// What the system tells of this process: its memory, and the processors that it may use (speccompile/machine/system.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "json.h"

namespace spc {

// Seconds since some moment, by a clock that never goes back.
double wall_seconds();
// Cores that this process may use, at least one: those of its affinity mask, or fewer as its quota says. root: "/" but in tests.
int available_cores(const std::string& root = "/");
// Its architecture, name and instruction sets: {"architecture", "name", "instructions"}, as Python's `processor`.
Json processor(const std::string& root = "/");
// Memory of this process in bytes by the names of runtime/engine.py's `process_memory`.
std::map<std::string, int64_t> process_memory();
// Return free heap to the system, where the C library can.
void trim_heap();
// What a variable of the environment holds, "" where it is not set.
std::string environment(const char* variable);
// The number in a variable. Throws Error(kUsage) unless it is above 0, or with `zero` at least 0 (speccompile/machine/environment.py).
double read_number(const char* variable, double otherwise, bool zero = false);

}  // namespace spc
