// What goes wrong: the kinds, messages and hints of speccompile/errors.py.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace spc {

// The numbers are those of the C ABI (spc_error_kind): they never change.
enum class Kind : int {
  kFailed = 1,       // SpeccompileError: failed for a named reason
  kUsage = 2,        // UsageError: the call or the command line is wrong
  kBundle = 10,      // BundleError: a folder that is not a bundle, or not the one that was built
  kEngine = 11,      // EngineError: an engine library that is missing or refuses a graph
  kPrompt = 12,      // PromptError: a prompt that this bundle cannot take
  kCancelled = 13,   // spc_session_cancel; Python has no such error
  kMemory = 14,      // out of memory
  kTooSmall = 15,    // a buffer of the caller's; the size that it needs was written
  kDefect = 70,      // a defect of speccompile
};

// 2 for what the caller can mend in the call, 70 for a defect, else 1: as Python's exit codes.
inline int exit_code(Kind kind) {
  if (kind == Kind::kUsage || kind == Kind::kPrompt) return 2;
  return kind == Kind::kDefect ? 70 : 1;
}

// A message says what was received, what was expected and where; the hint, "" for none, what to change.
class Error : public std::exception {
 public:
  Error(Kind kind, std::string message, std::string hint = "") : kind(kind), message(std::move(message)), hint(std::move(hint)) {}
  const char* what() const noexcept override { return message.c_str(); }

  Kind kind;
  std::string message, hint;
};

}  // namespace spc
