#include "errors.h"

#include <new>

#include "speccompile.hpp"

namespace triton {

namespace {

TRITONSERVER_Error_Code code_of(int kind) {
  switch (kind) {
    case SPC_USAGE:
    case SPC_PROMPT:
      return TRITONSERVER_ERROR_INVALID_ARG;
    case SPC_CANCELLED:
      return TRITONSERVER_ERROR_CANCELLED;
    case SPC_MEMORY:
      return TRITONSERVER_ERROR_UNAVAILABLE;
    default:
      return TRITONSERVER_ERROR_INTERNAL;
  }
}

}  // namespace

void check(TRITONSERVER_Error* error) {
  if (!error) return;
  const std::string message = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  throw std::runtime_error(message);
}

void ignore(TRITONSERVER_Error* error) {
  if (error) TRITONSERVER_ErrorDelete(error);
}

TRITONSERVER_Error* error_of(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Refused& error) {
    return TRITONSERVER_ErrorNew(error.code, error.what());
  } catch (const speccompile::Error& error) {
    const std::string hint = error.hint.empty() ? "" : " (hint: " + error.hint + ")";
    return TRITONSERVER_ErrorNew(code_of(error.kind), (error.what() + hint).c_str());
  } catch (const std::bad_alloc&) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "a defect of speccompile: something unknown was thrown");
  }
}

void log(TRITONSERVER_LogLevel level, const std::string& line) {
  ignore(TRITONSERVER_LogMessage(level, "speccompile", 0, line.c_str()));
}

}  // namespace triton
