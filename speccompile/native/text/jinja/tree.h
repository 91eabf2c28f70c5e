// A chat template as a tree of statements and expressions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "value.h"

namespace spc::jinja {

// An expression. name: of a variable, attribute, filter, test or operator. parts: what it is made of, in the order in which it is
// written; named: arguments by name; the names * and ** stand for a list of arguments, and a mapping of named ones.
struct Expression {
  enum class Type {
    kConstant, kVariable, kList, kTuple, kDict, kAttribute, kItem, kSlice, kCall, kFilter, kTest, kNot, kNegative, kPositive, kAnd, kOr, kChoice,
    kBinary, kComparison, kConcatenation
  };

  Type type = Type::kConstant;
  int64_t line = 0;
  std::string name;
  Value constant;
  std::vector<Expression> parts;
  std::vector<std::pair<std::string, Expression>> named;
  std::vector<std::string> operators;  // of a comparison; of a slice "1" for each bound that is there, else "0"
};

struct Statement;
using Statements = std::vector<Statement>;

// A parameter of a macro, with its default.
struct Parameter {
  std::string name;
  std::vector<Expression> value;  // one, or none
};

// A statement. names: targets of loops and sets, or the macro's own; parts: its expressions.
struct Statement {
  enum class Type { kText, kOutput, kIf, kFor, kSet, kSetBlock, kSetAttribute, kMacro, kCallBlock, kFilterBlock, kWith, kBreak, kContinue };

  Type type;
  int64_t line;
  std::string text;  // of kText; the attribute of kSetAttribute
  std::vector<std::string> names;
  std::vector<Expression> parts;
  Statements body, otherwise;
  std::vector<Parameter> parameters;
  bool is_recursive = false;  // of a loop: its variable can be called
  bool has_caller = false;  // of a macro: it names what {% call %} gives to it
};

// Return the statements of a template. Throws TemplateError.
Statements parse_template(const std::string& source);

}  // namespace spc::jinja
