// Expressions, as jinja2's own parser reads them.
#include <algorithm>
#include <cstdlib>

#include "parser.h"

namespace spc::jinja {
namespace {

using Type = Expression::Type;

Expression made(Type type, int64_t line, std::string name = "", std::vector<Expression> parts = {}) {
  Expression found;
  found.type = type;
  found.line = line;
  found.name = std::move(name);
  found.parts = std::move(parts);
  return found;
}

Expression constant(Value value, int64_t line) {
  Expression found = made(Type::kConstant, line);
  found.constant = std::move(value);
  return found;
}

// An initializer list would copy the parts.
std::vector<Expression> both(Expression one, Expression other) {
  std::vector<Expression> found;
  found.push_back(std::move(one));
  found.push_back(std::move(other));
  return found;
}

}  // namespace

Expression Parser::expression(bool has_choice) {
  const Deeper deeper(*this);
  Expression found = disjunction();
  while (has_choice && token().is_name("if")) {
    const int64_t line = take().line;
    std::vector<Expression> parts = both(std::move(found), disjunction());
    if (skip_name("else")) parts.push_back(expression());
    found = made(Type::kChoice, line, "", std::move(parts));
  }
  return found;
}

// One expression, or several with commas between them.
Expression Parser::tuple(bool has_choice) {
  const int64_t line = token().line;
  Expression first = expression(has_choice);
  if (!token().is_operator(",")) return first;
  Expression found = made(Type::kTuple, line);
  found.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (token().type == Token::Type::kEnd || token().is_operator(")") || token().is_name("if")) break;
    found.parts.push_back(expression(has_choice));
  }
  return found;
}

Expression Parser::disjunction() {
  Expression found = conjunction();
  while (token().is_name("or")) {
    const int64_t line = take().line;
    found = made(Type::kOr, line, "", both(std::move(found), conjunction()));
  }
  return found;
}

Expression Parser::conjunction() {
  Expression found = negation();
  while (token().is_name("and")) {
    const int64_t line = take().line;
    found = made(Type::kAnd, line, "", both(std::move(found), negation()));
  }
  return found;
}

Expression Parser::negation() {
  const Deeper deeper(*this);
  if (!token().is_name("not")) return comparison();
  Expression found = made(Type::kNot, take().line);
  found.parts.push_back(negation());
  return found;
}

Expression Parser::comparison() {
  static constexpr const char* kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  Expression found = made(Type::kComparison, token().line);
  found.parts.push_back(sum());
  for (;;) {
    const bool is_known = token().type == Token::Type::kOperator && std::find(std::begin(kOperators), std::end(kOperators), token().text) != std::end(kOperators);
    const bool is_not_in = token().is_name("not") && following().is_name("in");
    if (!is_known && !is_not_in && !token().is_name("in")) break;
    found.operators.push_back(is_not_in ? "not in" : token().text);
    take();
    if (is_not_in) take();
    found.parts.push_back(sum());
  }
  if (found.operators.empty()) return Expression(std::move(found.parts[0]));
  return found;
}

Expression Parser::sum() {
  Expression found = concatenation();
  while (token().is_operator("+") || token().is_operator("-")) {
    const Token sign = take();
    found = made(Type::kBinary, sign.line, sign.text, both(std::move(found), concatenation()));
  }
  return found;
}

Expression Parser::concatenation() {
  Expression first = product();
  if (!token().is_operator("~")) return first;
  Expression found = made(Type::kConcatenation, token().line);
  found.parts.push_back(std::move(first));
  while (skip_operator("~")) found.parts.push_back(product());
  return found;
}

Expression Parser::product() {
  Expression found = power();
  while (token().is_operator("*") || token().is_operator("/") || token().is_operator("//") || token().is_operator("%")) {
    const Token sign = take();
    found = made(Type::kBinary, sign.line, sign.text, both(std::move(found), power()));
  }
  return found;
}

Expression Parser::power() {
  Expression found = unary(true);
  while (token().is_operator("**")) {
    const int64_t line = take().line;
    found = made(Type::kBinary, line, "**", both(std::move(found), unary(true)));
  }
  return found;
}

Expression Parser::unary(bool has_filter) {
  const Deeper deeper(*this);
  Expression found;
  if (token().is_operator("-") || token().is_operator("+")) {
    const Token sign = take();
    found = made(sign.text == "-" ? Type::kNegative : Type::kPositive, sign.line);
    found.parts.push_back(unary(false));
  } else {
    found = primary();
  }
  found = postfix(std::move(found));
  return has_filter ? filters(std::move(found)) : found;
}

Expression Parser::primary() {
  const Token next = take();
  switch (next.type) {
    case Token::Type::kName:
      if (next.text == "true" || next.text == "True") return constant(true, next.line);
      if (next.text == "false" || next.text == "False") return constant(false, next.line);
      if (next.text == "none" || next.text == "None") return constant(Value(), next.line);
      has_caller_ = has_caller_ || next.text == "caller";
      return made(Type::kVariable, next.line, next.text);
    case Token::Type::kString: {
      std::string text = next.text;
      while (token().type == Token::Type::kString) text += take().text;
      return constant(text, next.line);
    }
    case Token::Type::kInteger: return constant(static_cast<int64_t>(std::stoll(next.text)), next.line);
    case Token::Type::kReal: return constant(std::strtod(next.text.c_str(), nullptr), next.line);
    case Token::Type::kOperator:
      if (next.text == "[") return list();
      if (next.text == "{") return dict();
      if (next.text == "(") {
        if (skip_operator(")")) return made(Type::kTuple, next.line);
        Expression found = tuple();
        expect_operator(")");
        return found;
      }
      break;
    default: break;
  }
  if (next.type != Token::Type::kLast) --at_;
  fail_at_token();
}

Expression Parser::list() {
  Expression found = made(Type::kList, token().line);
  while (!skip_operator("]")) {
    if (!found.parts.empty()) {
      expect_operator(",");
      if (skip_operator("]")) break;
    }
    found.parts.push_back(expression());
  }
  return found;
}

Expression Parser::dict() {
  Expression found = made(Type::kDict, token().line);
  while (!skip_operator("}")) {
    if (!found.parts.empty()) {
      expect_operator(",");
      if (skip_operator("}")) break;
    }
    found.parts.push_back(expression());
    expect_operator(":");
    found.parts.push_back(expression());
  }
  return found;
}

Expression Parser::postfix(Expression value) {
  for (;;) {
    const int64_t line = token().line;
    if (skip_operator(".")) {
      std::vector<Expression> parts;
      parts.push_back(std::move(value));
      if (token().type == Token::Type::kInteger)
        parts.push_back(constant(static_cast<int64_t>(std::stoll(take().text)), line));
      else
        parts.push_back(constant(expect_name(), line));
      const Type type = parts[1].constant.is_text() ? Type::kAttribute : Type::kItem;
      value = made(type, line, "", std::move(parts));
    } else if (skip_operator("[")) {
      value = item(std::move(value));
    } else if (token().is_operator("(")) {
      Expression call = made(Type::kCall, line);
      call.parts.push_back(std::move(value));
      arguments(call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

// Parse the index or slice of [..], after its first bracket.
Expression Parser::item(Expression value) {
  const int64_t line = token().line;
  std::vector<Expression> bounds;
  std::vector<std::string> present;
  bool is_slice = false;
  const auto ends = [this] { return token().is_operator("]") || token().is_operator(":"); };
  const auto bound = [&] {
    present.push_back(ends() ? "0" : "1");
    if (!ends()) bounds.push_back(expression());
  };
  bound();
  while (skip_operator(":")) {
    is_slice = true;
    bound();
  }
  expect_operator("]");
  if (bounds.empty() && !is_slice) fail("expected an index");
  if (present.size() > 3) fail("a slice has more than three bounds");
  Expression found = made(is_slice ? Type::kSlice : Type::kItem, line);
  found.parts.push_back(std::move(value));
  for (Expression& each : bounds) found.parts.push_back(std::move(each));
  found.operators = std::move(present);
  return found;
}

void Parser::arguments(Expression& call) {
  expect_operator("(");
  bool is_first = true;
  while (!skip_operator(")")) {
    if (!is_first) {
      expect_operator(",");
      if (skip_operator(")")) return;
    }
    is_first = false;
    argument(call);
  }
}

void Parser::argument(Expression& call) {
  const auto has = [&](const char* name) { return std::any_of(call.named.begin(), call.named.end(), [name](const auto& each) { return each.first == name; }); };
  const auto check = [&](bool fits) {
    if (!fits) fail("invalid syntax for function call expression");
  };
  if (token().is_operator("*") || token().is_operator("**")) {
    const std::string stars = take().text;
    check(!has("**") && !(stars == "*" && has("*")));
    call.named.emplace_back(stars, expression());
  } else if (token().type == Token::Type::kName && following().is_operator("=")) {
    std::string name = take().text;
    take();
    check(!has("**"));
    call.named.emplace_back(std::move(name), expression());
  } else {
    check(call.named.empty());
    call.parts.push_back(expression());
  }
}

Expression Parser::filters(Expression value) {
  for (;;) {
    if (skip_operator("|")) {
      value = filter(std::move(value));
    } else if (token().is_name("is")) {
      take();
      value = test(std::move(value));
    } else if (token().is_operator("(")) {
      Expression call = made(Type::kCall, token().line);
      call.parts.push_back(std::move(value));
      arguments(call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

Expression Parser::filter(Expression value) {
  Expression found = made(Type::kFilter, token().line, expect_name());
  while (skip_operator(".")) found.name += "." + expect_name();
  found.parts.push_back(std::move(value));
  if (token().is_operator("(")) arguments(found);
  return found;
}

Expression Parser::test(Expression value) {
  const bool is_not = skip_name("not");
  Expression found = made(Type::kTest, token().line, expect_name());
  while (skip_operator(".")) found.name += "." + expect_name();
  found.parts.push_back(std::move(value));
  const Token& next = token();
  const bool is_value = next.type == Token::Type::kName || next.type == Token::Type::kString || next.type == Token::Type::kInteger ||
                        next.type == Token::Type::kReal || next.is_operator("[") || next.is_operator("{");
  const bool is_word = next.is_name("else") || next.is_name("or") || next.is_name("and");
  if (next.is_operator("(")) {
    arguments(found);
  } else if (is_value && !is_word) {
    if (next.is_name("is")) fail("You cannot chain multiple tests with is");
    found.parts.push_back(postfix(primary()));
  }
  if (!is_not) return found;
  Expression negated = made(Type::kNot, found.line);
  negated.parts.push_back(std::move(found));
  return negated;
}

}  // namespace spc::jinja
