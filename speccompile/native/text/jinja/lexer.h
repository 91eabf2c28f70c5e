// A chat template in tokens, as Jinja with trim_blocks and lstrip_blocks cuts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spc::jinja {

// kText: between tags; kOutput, kTag: begins; kEnd: of either. kName, kString, kInteger, kReal, kOperator: inside.
struct Token {
  enum class Type { kText, kOutput, kTag, kEnd, kName, kString, kInteger, kReal, kOperator, kLast };

  Type type;
  std::string text;
  int64_t line;

  bool is(Type other, const char* word) const { return type == other && text == word; }
  bool is_operator(const char* word) const { return is(Type::kOperator, word); }
  bool is_name(const char* word) const { return is(Type::kName, word); }
};

// Return the tokens of a template, closed by a kLast. Throws TemplateError.
std::vector<Token> tokens_of(const std::string& source);

}  // namespace spc::jinja
