// Error responses: an HTTP status, and an error in OpenAI's form (serving/http/errors.py).
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "../../json.h"

namespace spc::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

// Types of errors. OpenAI's clients look at the status only.
constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kNotFound = "not_found_error";
constexpr const char* kUnavailable = "unavailable_error";
constexpr const char* kFault = "server_error";
constexpr const char* kLimited = "rate_limit_error";

// Error of a request. kind: one of the types above; param: the invalid field, as in `messages[0].role`; code: machine-readable
// name of the error; both, and the hint, may be "".
struct RequestError : std::exception {
  RequestError(int status, std::string message, std::string param = "", std::string code = "", std::string hint = "")
      : status(status), message(std::move(message)), param(std::move(param)), code(std::move(code)), hint(std::move(hint)) {}
  RequestError& of_kind(const char* other) & {
    kind = other;
    return *this;
  }
  RequestError&& of_kind(const char* other) && { return std::move(of_kind(other)); }
  RequestError&& with(const char* name, std::string value) && {
    headers.emplace_back(name, std::move(value));
    return std::move(*this);
  }
  const char* what() const noexcept override { return message.c_str(); }
  // {"error": ..} in OpenAI's form.
  Json to_json() const;

  int status;
  std::string message, param, code, hint;
  const char* kind = kInvalid;
  Headers headers;
};

// Return the exception that is being handled, as the error for the client. A defect of speccompile is logged, and its details are
// not sent.
RequestError current_request_error();
// Return the error for a sequence with the finish reason `cancelled` or `timeout`, after `tokens` new tokens.
RequestError cancelled_error(const std::string& reason, size_t tokens);

}  // namespace spc::http
