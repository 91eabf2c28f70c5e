#include "errors.h"

#include <algorithm>
#include <cmath>

#include "../../errors.h"
#include "../../progress.h"
#include "../scheduler/request.h"

namespace spc::http {
namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

constexpr const char* kRetryAfter = "Retry-After";

RequestError overloaded(const OverloadedError& error) {
  if (!error.retry_after)  // by then another replica has replaced this one
    return RequestError(503, error.message, "", "draining").of_kind(kUnavailable).with(kRetryAfter, "1");
  const auto seconds = static_cast<int64_t>(std::ceil(std::max(1.0, *error.retry_after)));
  return RequestError(429, error.message, "", "rate_limit_exceeded").of_kind(kLimited).with(kRetryAfter, std::to_string(seconds));
}

RequestError failed(const Error& error) {
  if (error.kind == Kind::kUsage || error.kind == Kind::kPrompt) return {400, error.message, "", "", error.hint};
  warn("a request failed: " + error.message);
  return RequestError(500, error.message, "", "", error.hint).of_kind(kFault);
}

RequestError defect(const std::string& what) {
  warn("a request failed, by a defect of speccompile: " + what);
  return RequestError(500, "the server failed: its log says how", "", "defect").of_kind(kFault);
}

}  // namespace

Json RequestError::to_json() const {
  const std::string whole = hint.empty() ? message : message + " (hint: " + hint + ")";
  return Json::Object{{"error", Json::Object{{"message", whole}, {"type", kind}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

RequestError current_request_error() {
  try {
    throw;
  } catch (const RequestError& error) {
    return error;
  } catch (const OverloadedError& error) {
    return overloaded(error);
  } catch (const Error& error) {
    return error.kind == Kind::kDefect ? defect(error.message) : failed(error);
  } catch (const std::bad_alloc&) {
    return RequestError(500, "the server is out of memory", "", "out_of_memory").of_kind(kFault);
  } catch (const std::exception& error) {
    return defect(error.what());
  }
}

RequestError cancelled_error(const std::string& reason, size_t tokens) {
  if (reason == finish::kCancelled)
    return RequestError(503, "the server is closing and did not finish this request", "", "draining").of_kind(kUnavailable).with(kRetryAfter, "1");
  if (!tokens)
    return RequestError(503, "the request waited for longer than this server allows", "", "timeout").of_kind(kUnavailable).with(kRetryAfter, "1");
  return RequestError(504, "the request took longer than this server allows: it was ended after " + std::to_string(tokens) + " new tokens", "", "timeout",
                      "ask for fewer tokens, or stream")
      .of_kind(kUnavailable)
      .with("x-should-retry", "false");  // OpenAI's clients otherwise repeat requests that got 500 and above
}

}  // namespace spc::http
