#include "parser.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace spc::constraints {
namespace {

constexpr size_t kMostInRow = 10'000;      // items, as Python's limit of a step
constexpr size_t kMostItems = 3'000'000;  // of all rows that are kept: some 40 MB

}  // namespace

Parser::Parser(std::shared_ptr<Grammar> grammar)
    : grammar_(std::move(grammar)), lexer_(std::make_shared<Lexer>(grammar_->expressions, grammar_->lexemes())) {
  Row first;
  for (const int rule : grammar_->rules_of(grammar_->start())) first.items.push_back({rule, 0, 0});
  complete(first, 0, -1);
  places_.push_back({add(std::move(first)), 0, false});
  places_[0].state = row(0).start;
}

int Parser::add(Row made) {
  items_ += made.items.size();
  if (items_ > kMostItems) throw TooComplex();
  rows_.push_back(std::move(made));
  return static_cast<int>(rows_.size() - 1);
}

bool Parser::push(uint8_t byte) {
  Place place = places_.back();
  int next = lexer_->step(place.state, byte);
  if (next == Lexer::kDead) {
    const int accepted = lexer_->at(place.state).accepted;
    if (accepted == Lexer::kDead) return false;
    place.row = scan(place.row, accepted);
    if (place.row < 0) return false;
    next = lexer_->step(row(place.row).start, byte);
    if (next == Lexer::kDead) return false;
    // A lexeme of one byte behind another ends at once.
    if (!lexer_->at(next).is_end) {
      places_.push_back({place.row, next, true});
      return true;
    }
  } else {
    const Lexer::State& state = lexer_->at(next);
    if (!state.is_end || !grammar_->lexemes()[static_cast<size_t>(state.live[0].first)].special) {
      places_.push_back({place.row, next, true});
      return true;
    }
  }
  const int behind = scan(place.row, lexer_->at(next).accepted);
  if (behind < 0) return false;
  places_.push_back({behind, row(behind).start, false});
  return true;
}

bool Parser::is_accepting() {
  const Place place = places_.back();
  if (!place.has_begun) return row(place.row).accepts;
  const int accepted = lexer_->at(place.state).accepted;
  if (accepted == Lexer::kDead) return false;
  const int behind = scan(place.row, accepted);
  return behind >= 0 && row(behind).accepts;
}

bool Parser::is_complete() {
  if (!is_accepting()) return false;
  const Place place = places_.back();
  if (!place.has_begun) return !row(place.row).can_advance;
  const Lexer::State& state = lexer_->at(place.state);
  return state.is_end && !row(scan(place.row, state.accepted)).can_advance;
}

// Return the row behind some lexemes, which is made if it is new; -1 if there is none.
int Parser::scan(int from, int accepted) {
  for (const auto& [lexemes, known] : row(from).next)
    if (lexemes == accepted) return known;
  const std::vector<int> lexemes = lexer_->accepted(accepted);  // a copy: they move as others are made
  const auto skip = std::find_if(lexemes.begin(), lexemes.end(), [&](int each) { return grammar_->lexemes()[static_cast<size_t>(each)].is_skip; });
  Row made = skip != lexemes.end() ? skipped(from, *skip) : advanced(from, lexemes);
  const int found = made.items.empty() ? -1 : add(std::move(made));
  rows_[static_cast<size_t>(from)].next.emplace_back(accepted, found);
  return found;
}

// Behind a blank the same may follow; no other blank where only one may stand.
Parser::Row Parser::skipped(int from, int skip) {
  Row made = row(from);
  made.next.clear();
  if (grammar_->part(grammar_->lexemes()[static_cast<size_t>(skip)].part).once) {
    made.allowed.erase(std::remove(made.allowed.begin(), made.allowed.end(), skip), made.allowed.end());
    made.start = lexer_->start(made.allowed);
  }
  return made;
}

Parser::Row Parser::advanced(int from, const std::vector<int>& lexemes) {
  Row made;
  for (const Item& item : row(from).items) {
    const std::vector<Symbol>& right = grammar_->rules()[static_cast<size_t>(item.rule)].right;
    if (static_cast<size_t>(item.dot) == right.size()) continue;
    const Symbol symbol = right[static_cast<size_t>(item.dot)];
    if (symbol < 0 && std::find(lexemes.begin(), lexemes.end(), ~symbol) != lexemes.end()) made.items.push_back({item.rule, item.dot + 1, item.origin});
  }
  complete(made, static_cast<int>(rows_.size()), grammar_->lexemes()[static_cast<size_t>(lexemes[0])].part);
  return made;
}

// Add what follows from a row's items. number: of the row. part: of the lexeme before it, -1 for none.
void Parser::complete(Row& made, int number, int part) {
  struct Hash {
    size_t operator()(const Item& item) const {
      return (static_cast<size_t>(item.rule) * 0x9E3779B97F4A7C15u) ^ (static_cast<size_t>(item.dot) << 40) ^ static_cast<size_t>(item.origin) * 31;
    }
  };
  std::unordered_set<Item, Hash> seen(made.items.begin(), made.items.end());
  const auto put = [&](const Item& item) {
    if (!seen.insert(item).second) return;
    if (made.items.size() >= kMostInRow) throw TooComplex();
    made.items.push_back(item);
  };
  made.accepts = false;
  for (size_t at = 0; at < made.items.size(); ++at) {
    const Item item = made.items[at];
    const Grammar::Rule& rule = grammar_->rules()[static_cast<size_t>(item.rule)];
    if (static_cast<size_t>(item.dot) < rule.right.size()) {
      const Symbol symbol = rule.right[static_cast<size_t>(item.dot)];
      if (symbol < 0) {
        made.allowed.push_back(~symbol);
        continue;
      }
      for (const int each : grammar_->rules_of(symbol)) put({each, 0, number});
      if (grammar_->is_nullable(symbol)) put({item.rule, item.dot + 1, item.origin});
      continue;
    }
    made.accepts = made.accepts || rule.left == grammar_->start();
    if (item.origin == number) continue;  // an empty one: seen where it was expected
    for (const Item& waiting : row(item.origin).items) {
      const std::vector<Symbol>& right = grammar_->rules()[static_cast<size_t>(waiting.rule)].right;
      if (static_cast<size_t>(waiting.dot) < right.size() && right[static_cast<size_t>(waiting.dot)] == rule.left)
        put({waiting.rule, waiting.dot + 1, waiting.origin});
    }
  }
  std::sort(made.allowed.begin(), made.allowed.end());
  made.allowed.erase(std::unique(made.allowed.begin(), made.allowed.end()), made.allowed.end());
  made.can_advance = !made.allowed.empty();
  allow_skip(made, part);
  made.start = lexer_->start(made.allowed);
}

// Allow the lexeme that is skipped (whitespace) in the innermost part of the grammar that can go on. part: of the lexeme before.
void Parser::allow_skip(Row& made, int part) const {
  const auto goes_on = [&](int which) {
    return std::any_of(made.allowed.begin(), made.allowed.end(), [&](int each) { return grammar_->lexemes()[static_cast<size_t>(each)].part == which; });
  };
  for (; part >= 0; part = grammar_->part(part).around) {
    if (!goes_on(part)) continue;
    if (const int skip = grammar_->part(part).skip; skip >= 0) made.allowed.insert(std::lower_bound(made.allowed.begin(), made.allowed.end(), skip), skip);
    return;
  }
}

}  // namespace spc::constraints
