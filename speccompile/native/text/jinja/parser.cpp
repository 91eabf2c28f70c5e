#include "parser.h"

#include <algorithm>

#include "../../words.h"

namespace spc::jinja {
namespace {

constexpr int kDeepest = 100;
constexpr size_t kLargest = 1 << 18;  // bytes of a template; published ones have some ten thousand

Statement made(Statement::Type type, int64_t line) {
  Statement found;
  found.type = type;
  found.line = line;
  return found;
}

}  // namespace

Parser::Deeper::Deeper(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > kDeepest) parser_.fail("it is nested deeper than " + std::to_string(kDeepest));
}

bool Parser::skip_operator(const char* word) {
  if (!token().is_operator(word)) return false;
  take();
  return true;
}

bool Parser::skip_name(const char* word) {
  if (!token().is_name(word)) return false;
  take();
  return true;
}

void Parser::expect_operator(const char* word) {
  if (!skip_operator(word)) fail(std::string("expected token '") + word + "', got " + python_repr(token().text));
}

std::string Parser::expect_name() {
  if (token().type != Token::Type::kName) fail("expected token 'name', got " + python_repr(token().text));
  return take().text;
}

void Parser::expect_end() {
  if (token().type != Token::Type::kEnd) fail_at_token();
  take();
}

void Parser::fail_at_token() const {
  fail(token().type == Token::Type::kLast ? "unexpected end of template" : "unexpected " + python_repr(token().text));
}

Statements Parser::whole() {
  Statements found = statements({});
  if (token().type != Token::Type::kLast) fail("Encountered unknown tag " + python_repr(following().text) + ".");
  return found;
}

// Statements up to a tag that begins with one of `ends`, which is left there.
Statements Parser::statements(const std::vector<std::string>& ends) {
  const Deeper deeper(*this);
  Statements found;
  for (;;) {
    const int64_t line = token().line;
    if (token().type == Token::Type::kText) {
      found.push_back(made(Statement::Type::kText, line));
      found.back().text = take().text;
    } else if (token().type == Token::Type::kOutput) {
      take();
      found.push_back(made(Statement::Type::kOutput, line));
      found.back().parts.push_back(tuple());
      expect_end();
    } else if (token().type == Token::Type::kTag) {
      if (std::find(ends.begin(), ends.end(), following().text) != ends.end()) return found;
      if (starts_with(following().text, "end") || following().text == "else" || following().text == "elif") {
        if (ends.empty()) return found;
        fail("Encountered unknown tag " + python_repr(following().text) + ", expected " + ends.back());
      }
      found.push_back(tag());
    } else {
      if (!ends.empty()) fail("Unexpected end of template, expected " + ends.back());
      return found;
    }
  }
}

// Statements up to a tag `end`, which is taken.
Statements Parser::block(const char* end) {
  Statements found = statements({end});
  take();
  take();
  expect_end();
  return found;
}

Statement Parser::tag() {
  take();
  const int64_t line = token().line;
  const std::string word = expect_name();
  if (word == "if") return if_tag(line);
  if (word == "for") return for_tag(line);
  if (word == "set") return set_tag(line);
  if (word == "macro") return macro_tag(line);
  if (word == "call") return call_tag(line);
  if (word == "filter") return filter_tag(line);
  if (word == "with") return with_tag(line);
  if (word == "generation") {  // transformers' tag around the assistant's text, for training masks
    expect_end();
    Statement found = made(Statement::Type::kWith, line);
    found.body = block("endgeneration");
    return found;
  }
  if (word == "break" || word == "continue") {
    if (!loops_) fail("'" + word + "' stands outside a loop");
    expect_end();
    return made(word == "break" ? Statement::Type::kBreak : Statement::Type::kContinue, line);
  }
  fail("Encountered unknown tag " + python_repr(word) + ".");
}

Statement Parser::if_tag(int64_t line) {
  Statement found = made(Statement::Type::kIf, line);
  found.parts.push_back(tuple(false));
  if (token().is_name("if")) fail_at_token();
  expect_end();
  found.body = statements({"elif", "else", "endif"});
  take();
  const Token next = take();
  if (next.text == "elif") {
    const Deeper deeper(*this);
    found.otherwise.push_back(if_tag(next.line));
    return found;
  }
  expect_end();
  if (next.text == "else") found.otherwise = block("endif");
  return found;
}

// Names that a loop or a set writes, one or several.
std::vector<std::string> Parser::targets() {
  const bool has_bracket = skip_operator("(");
  std::vector<std::string> found = {expect_name()};
  while (skip_operator(",")) {
    if (token().type != Token::Type::kName || token().is_name("in")) break;
    found.push_back(expect_name());
  }
  if (has_bracket) expect_operator(")");
  return found;
}

Statement Parser::for_tag(int64_t line) {
  Statement found = made(Statement::Type::kFor, line);
  found.names = targets();
  if (!skip_name("in")) fail("expected token 'in', got " + python_repr(token().text));
  found.parts.push_back(tuple(false));
  if (skip_name("if")) found.parts.push_back(expression());
  found.is_recursive = skip_name("recursive");
  expect_end();
  ++loops_;
  found.body = statements({"else", "endfor"});
  --loops_;
  take();
  const Token next = take();
  expect_end();
  if (next.text == "else") found.otherwise = block("endfor");
  return found;
}

Statement Parser::set_tag(int64_t line) {
  Statement found = made(Statement::Type::kSet, line);
  if (following().is_operator(".")) {
    found.type = Statement::Type::kSetAttribute;
    found.names = {expect_name()};
    take();
    found.text = expect_name();
    expect_operator("=");
    found.parts.push_back(tuple());
    expect_end();
    return found;
  }
  found.names = targets();
  if (skip_operator("=")) {
    found.parts.push_back(tuple());
    expect_end();
    return found;
  }
  found.type = Statement::Type::kSetBlock;
  Expression filtered;
  filtered.type = Expression::Type::kConstant;
  if (token().is_operator("|")) found.parts.push_back(filters(std::move(filtered)));
  expect_end();
  found.body = block("endset");
  return found;
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> found;
  expect_operator("(");
  while (!skip_operator(")")) {
    if (!found.empty()) expect_operator(",");
    found.push_back({expect_name(), {}});
    if (skip_operator("=")) found.back().value.push_back(expression());
  }
  return found;
}

Statement Parser::macro_tag(int64_t line) {
  Statement found = made(Statement::Type::kMacro, line);
  found.names = {expect_name()};
  found.parameters = parameters();
  expect_end();
  const int loops = std::exchange(loops_, 0);
  const bool had_caller = std::exchange(has_caller_, false);
  found.body = block("endmacro");
  loops_ = loops;
  found.has_caller = has_caller_;
  has_caller_ = has_caller_ || had_caller;
  return found;
}

Statement Parser::call_tag(int64_t line) {
  Statement found = made(Statement::Type::kCallBlock, line);
  if (token().is_operator("(")) found.parameters = parameters();
  found.parts.push_back(expression());
  if (found.parts[0].type != Expression::Type::kCall) fail("expected call");
  expect_end();
  const int loops = std::exchange(loops_, 0);
  found.body = block("endcall");
  loops_ = loops;
  return found;
}

Statement Parser::filter_tag(int64_t line) {
  Statement found = made(Statement::Type::kFilterBlock, line);
  Expression filtered;
  filtered.line = line;
  filtered = filter(std::move(filtered));
  found.parts.push_back(filters(std::move(filtered)));
  expect_end();
  found.body = block("endfilter");
  return found;
}

Statement Parser::with_tag(int64_t line) {
  Statement found = made(Statement::Type::kWith, line);
  while (token().type != Token::Type::kEnd) {
    if (!found.names.empty()) expect_operator(",");
    found.names.push_back(expect_name());
    expect_operator("=");
    found.parts.push_back(expression());
  }
  expect_end();
  found.body = block("endwith");
  return found;
}

Statements parse_template(const std::string& source) {
  if (source.size() > kLargest) throw TemplateError{"it has " + std::to_string(source.size()) + " bytes, expected at most " + std::to_string(kLargest), 1};
  return Parser(tokens_of(source)).whole();
}

}  // namespace spc::jinja
