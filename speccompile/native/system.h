// System information about this process: memory, and cores that it may use (speccompile/machine/system.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "json.h"

namespace spc {

// Return monotonic seconds since a fixed moment.
double wall_seconds();
// Return the number of cores that this process may use, at least one: its affinity mask, limited by its CPU quota. root: "/"
// except in tests.
int available_cores(const std::string& root = "/");
// Return the processor's architecture, name and instruction sets: {"architecture", "name", "instructions"}, like Python's
// `processor`.
Json processor(const std::string& root = "/");
// Return the memory of this process in bytes, by the names of Python's `process_memory`.
std::map<std::string, int64_t> process_memory();
// Return free heap to the system, if the C library supports it.
void trim_heap();
// Return the value of an environment variable, "" if it is not set.
std::string environment(const char* variable);
// Return the number in an environment variable. Throws Error(kUsage) unless it is above 0, or with `zero` at least 0
// (speccompile/machine/environment.py).
double read_number(const char* variable, double otherwise, bool zero = false);

}  // namespace spc
