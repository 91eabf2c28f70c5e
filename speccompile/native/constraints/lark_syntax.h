// Syntax tree of a grammar in Lark's form.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../json.h"

namespace spc::constraints {

struct LarkTerm;
using LarkTerms = std::vector<LarkTerm>;           // one behind the other
using LarkOption = std::vector<LarkTerms>;         // all of these, with & between them
using LarkOptions = std::vector<LarkOption>;       // one of these

struct LarkTerm {
  enum class Kind { kGroup, kOptional, kNegated, kName, kText, kRegex, kRange, kSpecial, kJson };

  Kind kind = Kind::kGroup;
  LarkOptions options = {};              // kGroup, kOptional, kNegated
  std::string text = {}, end = {};       // kRange: from, to
  std::string flags = {};                // kText, kRegex
  Json schema = {};                      // kJson
  std::optional<std::pair<size_t, size_t>> repeats = {};  // at least, at most
};

struct LarkGrammar {
  std::map<std::string, LarkOptions> rules, tokens;
  std::vector<LarkOptions> ignored;
};

// Throws Refused for an invalid grammar, and for syntax that is not supported.
LarkGrammar read_lark(const std::string& source);

}  // namespace spc::constraints
