// Shared by the two halves of the parser: the tokens, and the depth of nesting.
#pragma once

#include <string>
#include <vector>

#include "lexer.h"
#include "tree.h"

namespace spc::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Return the statements up to the end of the template.
  Statements whole();

 private:
  // Counts how deep the parser is; a template of brackets alone must not use up the stack.
  class Deeper {
   public:
    explicit Deeper(Parser& parser);
    ~Deeper() { --parser_.depth_; }

   private:
    Parser& parser_;
  };
  friend class Deeper;

  // Tokens.
  const Token& token() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_operator(const char* word);
  bool skip_name(const char* word);
  void expect_operator(const char* word);
  std::string expect_name();
  void expect_end();
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError{message, token().line}; }
  [[noreturn]] void fail_at_token() const;

  // Statements (parser.cpp).
  Statements statements(const std::vector<std::string>& ends);
  Statement tag();
  Statement if_tag(int64_t line);
  Statement for_tag(int64_t line);
  Statement set_tag(int64_t line);
  Statement macro_tag(int64_t line);
  Statement call_tag(int64_t line);
  Statement filter_tag(int64_t line);
  Statement with_tag(int64_t line);
  std::vector<Parameter> parameters();
  Statements block(const char* end);
  std::vector<std::string> targets();

  // Expressions (expressions.cpp).
  Expression expression(bool has_choice = true);
  Expression tuple(bool has_choice = true);
  Expression disjunction();
  Expression conjunction();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression power();
  Expression unary(bool has_filter);
  Expression primary();
  Expression postfix(Expression value);
  Expression filters(Expression value);
  Expression filter(Expression value);
  Expression test(Expression value);
  Expression item(Expression value);
  Expression list();
  Expression dict();
  void arguments(Expression& call);
  void argument(Expression& call);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  bool has_caller_ = false;  // since the macro began
};

}  // namespace spc::jinja
