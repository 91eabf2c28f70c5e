#include "grammar.h"

#include <algorithm>
#include <utility>

namespace spc::constraints {
namespace {

constexpr size_t kLargest = 20'000;  // symbols in rules, as Python's limit

}  // namespace

int Grammar::begin_part(Expr skip, bool once) {
  const int around = parts_.empty() ? -1 : part_, number = static_cast<int>(parts_.size());
  part_ = number;
  parts_.push_back({-1, once, around});
  if (skip != kNothing) {
    parts_.back().skip = static_cast<int>(lexemes_.size());
    lexemes_.push_back({skip, number, true, false});
  }
  return number;
}

void Grammar::add(Symbol left, std::vector<Symbol> right) {
  size_ += right.size() + 1;
  if (size_ > kLargest) throw TooComplex();
  rules_of_[static_cast<size_t>(left)].push_back(static_cast<int>(rules_.size()));
  rules_.push_back({left, std::move(right)});
}

Symbol Grammar::placeholder() {
  rules_of_.emplace_back();
  return static_cast<Symbol>(rules_of_.size() - 1);
}

Symbol Grammar::lexeme(Expr expression, bool special) {
  if (expression == kEmpty) return joined({});
  const auto [found, is_new] = known_.emplace(std::pair(expression, part_), 0);
  if (!is_new) return found->second;
  const Symbol made = ~static_cast<Symbol>(lexemes_.size());
  lexemes_.push_back({expression, part_, false, special});
  found->second = made;
  if (expressions.is_nullable(expression)) found->second = optional(made);
  return found->second;
}

Symbol Grammar::literal(std::string_view text) { return lexeme(expressions.literal(text)); }

Symbol Grammar::joined(const std::vector<Symbol>& symbols) {
  if (symbols.size() == 1) return symbols[0];
  const Symbol made = placeholder();
  add(made, symbols);
  return made;
}

Symbol Grammar::selected(const std::vector<Symbol>& options) {
  if (options.size() == 1) return options[0];
  const Symbol made = placeholder();
  for (const Symbol option : options) add(made, {option});
  return made;
}

Symbol Grammar::copies(Symbol symbol, size_t count) {
  if (count <= 4) return joined(std::vector<Symbol>(count, symbol));
  const Symbol half = copies(symbol, count / 2);
  return count % 2 ? joined({half, half, symbol}) : joined({half, half});
}

Symbol Grammar::repeated(Symbol symbol, size_t least, size_t most) {
  Symbol rest = joined({});
  if (most == kUnlimited) {
    const Symbol star = placeholder();
    add(star, {});
    add(star, {star, symbol});
    rest = star;
  } else {
    if (most - least > kLargest) throw TooComplex();
    for (size_t left = most - least; left > 0; --left) rest = optional(joined({symbol, rest}));
  }
  return least ? joined({copies(symbol, least), rest}) : rest;
}

void Grammar::finish(Symbol start) {
  start_ = placeholder();
  add(start_, {start});
  nullable_.assign(rules_of_.size(), false);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const Rule& rule : rules_) {
      if (is_nullable(rule.left) || !std::all_of(rule.right.begin(), rule.right.end(), [&](Symbol each) { return is_nullable(each); })) continue;
      nullable_[static_cast<size_t>(rule.left)] = has_changed = true;
    }
  }
}

}  // namespace spc::constraints
