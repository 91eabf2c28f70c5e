// Errors: the kinds, messages and hints of speccompile/errors.py.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "contract_table.h"

namespace spc {

// The message names received and expected values and their place; the hint, "" for none, names a remedy.
class Error : public std::exception {
 public:
  Error(Kind kind, std::string message, std::string hint = "") : kind(kind), message(std::move(message)), hint(std::move(hint)) {}
  const char* what() const noexcept override { return message.c_str(); }

  Kind kind;
  std::string message, hint;
};

}  // namespace spc
