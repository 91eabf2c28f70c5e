// Earley's parser over lexemes: reads bytes, and takes them back.
//
// A lexeme ends where no byte more can be part of it, as in llguidance: the longest is read. What ends there at once is read as each
// of its lexemes.
#pragma once

#include <memory>
#include <vector>

#include "grammar.h"

namespace spc::constraints {

class Parser {
 public:
  explicit Parser(std::shared_ptr<Grammar> grammar);

  // Read a byte. Return false, with nothing changed, if it cannot follow. Throws TooComplex.
  bool push(uint8_t byte);
  // Take the last bytes back.
  void pop(size_t count) { places_.resize(places_.size() - count); }
  size_t size() const { return places_.size() - 1; }
  // Return whether the text may end here.
  bool is_accepting();
  // Return whether it ends here: it may, and nothing can follow.
  bool is_complete();

 private:
  struct Item {
    int rule, dot, origin;
    bool operator==(const Item& other) const { return rule == other.rule && dot == other.dot && origin == other.origin; }
  };
  // Earley items after some lexemes. Rows that were computed once are kept. next: accepted lexemes -> the row after them.
  struct Row {
    std::vector<Item> items;
    std::vector<int> allowed;  // lexemes
    int start;                 // of the lexer
    bool accepts, can_advance;
    std::vector<std::pair<int, int>> next;
  };
  // State after a byte. has_begun: a lexeme has begun.
  struct Place {
    int row, state;
    bool has_begun;
  };

  const Row& row(int number) const { return rows_[static_cast<size_t>(number)]; }
  int scan(int from, int accepted);
  Row skipped(int from, int skip);
  Row advanced(int from, const std::vector<int>& lexemes);
  void complete(Row& made, int number, int part);
  void allow_skip(Row& made, int part) const;
  int add(Row made);

  const std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<Lexer> lexer_;
  std::vector<Row> rows_;
  std::vector<Place> places_;
  size_t items_ = 0;
};

}  // namespace spc::constraints
