// Errors of this backend, of the server and of speccompile, as errors of the server.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "triton.h"

namespace triton {

// Words as those of speccompile's own errors: what was received and expected; the hint, "" for none, says what to change.
class Refused : public std::runtime_error {
 public:
  Refused(TRITONSERVER_Error_Code code, const std::string& message, const std::string& hint)
      : std::runtime_error(hint.empty() ? message : message + " (hint: " + hint + ")"), code(code) {}

  TRITONSERVER_Error_Code code;
};

// Throws where a function of the server's returned an error, and frees it.
void check(TRITONSERVER_Error* error);
// Frees an error that changes nothing.
void ignore(TRITONSERVER_Error* error);
// The error of an exception; the caller's, to free.
TRITONSERVER_Error* error_of(std::exception_ptr thrown);
// A line in the server's log.
void log(TRITONSERVER_LogLevel level, const std::string& line);

// f() at the border to the server: an exception becomes an error.
template <class F>
TRITONSERVER_Error* guarded(F f) noexcept {
  try {
    f();
    return nullptr;
  } catch (...) {
    return error_of(std::current_exception());
  }
}

}  // namespace triton
