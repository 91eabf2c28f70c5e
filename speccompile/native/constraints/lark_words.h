// The words of a grammar in Lark's form.
#pragma once

#include <string>
#include <vector>

#include "../json.h"

namespace spc::constraints {

struct LarkWord {
  enum class Kind { kRule, kToken, kText, kRegex, kNumber, kSpecial, kJson, kNewline, kSign };

  Kind kind;
  std::string text;   // of kText its value, of kRegex the text between the slashes
  size_t line;
  std::string flags = {};
  Json json = {};
};

// Throws Refused.
std::vector<LarkWord> read_lark_words(const std::string& source);
// Return the regular expression of a token that %import names. Throws Refused.
std::string common_regex(const std::string& path);

}  // namespace spc::constraints
