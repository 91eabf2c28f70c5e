// Lexemes of a grammar, and the automaton that reads several of them side by side, made as far as texts ask for it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "expressions.h"

namespace spc::constraints {

// is_skip: it may stand between other lexemes of its part of the grammar. special: the mark of a special token.
struct Lexeme {
  Expr expression;
  int part;
  bool is_skip, special;
};

class Lexer {
 public:
  static constexpr int kDead = -1;

  struct State {
    std::vector<std::pair<int, Expr>> live;  // lexeme, what may follow
    int accepted = kDead;                    // number of the lexemes that end here, kDead for none
    bool is_end = false;                     // nothing may follow
    std::array<int, 256> next;
  };

  Lexer(Expressions& expressions, const std::vector<Lexeme>& lexemes) : expressions_(expressions), lexemes_(lexemes) {}

  // Return the state before any of some lexemes, which are sorted. Throws TooComplex.
  int start(const std::vector<int>& lexemes);
  // Return the state behind a byte, or kDead. Throws TooComplex.
  int step(int state, uint8_t byte);
  const State& at(int state) const { return *states_[static_cast<size_t>(state)]; }
  const std::vector<int>& accepted(int number) const { return accepted_[static_cast<size_t>(number)]; }

 private:
  static constexpr int kUnknown = -2;

  int made(std::vector<std::pair<int, Expr>> live);

  Expressions& expressions_;
  const std::vector<Lexeme>& lexemes_;
  std::vector<std::unique_ptr<State>> states_;
  std::map<std::vector<std::pair<int, Expr>>, int> known_;
  std::vector<std::vector<int>> accepted_;
  std::map<std::vector<int>, int> known_accepted_;
};

}  // namespace spc::constraints
