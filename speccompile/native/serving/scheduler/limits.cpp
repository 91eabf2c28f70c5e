#include "limits.h"

#include <string>

#include "../../errors.h"
#include "../../json.h"

namespace spc {
namespace {

void check_limit(const char* name, std::optional<double> value, bool may_be_none) {
  if (!value || *value > 0 || (*value == 0 && may_be_none)) return;
  throw Error(Kind::kUsage,
              std::string(name) + ": received " + Json(*value).repr() + ", expected " + (may_be_none ? "0 or more" : "more than 0"), "or leave it out");
}

}  // namespace

void Limits::check() const {
  check_limit("requests", static_cast<double>(requests), true);
  check_limit("tokens", static_cast<double>(tokens), true);
  check_limit("sequences", static_cast<double>(sequences), false);
  check_limit("queue_seconds", queue_seconds, false);
  check_limit("seconds", seconds, false);
  if (client_rows) check_limit("client_rows", static_cast<double>(*client_rows), false);
}

}  // namespace spc
