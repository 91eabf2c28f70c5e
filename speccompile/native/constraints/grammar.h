// Context-free grammar over lexemes, and its builder.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "lexer.h"

namespace spc::constraints {

using Symbol = int32_t;  // a lexeme L is ~L

class Grammar {
 public:
  Grammar() = default;
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  struct Rule {
    Symbol left;
    std::vector<Symbol> right;
  };
  // Part of a grammar whose lexemes have the same kind of blanks between them. skip: the blanks' lexeme, -1 for none. once: at
  // most one blank between two lexemes. around: number of the enclosing part.
  struct Part {
    int skip;
    bool once;
    int around;
  };

  // Begin a part. skip: kNothing for none. Return its number; rules that follow belong to this part.
  int begin_part(Expr skip, bool once);
  void set_part(int part) { part_ = part; }
  int part() const { return part_; }

  // All throw TooComplex for a grammar that becomes too large.
  Symbol lexeme(Expr expression, bool special = false);
  Symbol literal(std::string_view text);
  Symbol joined(const std::vector<Symbol>& symbols);
  Symbol selected(const std::vector<Symbol>& options);
  Symbol optional(Symbol symbol) { return selected({symbol, joined({})}); }
  // most: kUnlimited for no limit.
  Symbol repeated(Symbol symbol, size_t least, size_t most);
  // A symbol that `define` gives its meaning.
  Symbol placeholder();
  void define(Symbol placeholder, Symbol meaning) { add(placeholder, {meaning}); }
  // Set the start, and find which symbols may be empty.
  void finish(Symbol start);

  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<int>& rules_of(Symbol symbol) const { return rules_of_[static_cast<size_t>(symbol)]; }
  bool is_nullable(Symbol symbol) const { return symbol >= 0 && nullable_[static_cast<size_t>(symbol)]; }
  Symbol start() const { return start_; }
  const std::vector<Lexeme>& lexemes() const { return lexemes_; }
  const Part& part(int number) const { return parts_[static_cast<size_t>(number)]; }

  Expressions expressions;

 private:
  void add(Symbol left, std::vector<Symbol> right);
  Symbol copies(Symbol symbol, size_t count);

  std::vector<Rule> rules_;
  std::vector<std::vector<int>> rules_of_;
  std::vector<bool> nullable_;
  std::vector<Lexeme> lexemes_;
  std::vector<Part> parts_;
  std::map<std::pair<Expr, int>, Symbol> known_;
  Symbol start_ = 0;
  int part_ = 0;
  size_t size_ = 0;
};

}  // namespace spc::constraints
