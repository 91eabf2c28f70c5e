#include "lexer.h"

#include <utility>

namespace spc::constraints {
namespace {

constexpr size_t kMostStates = 50'000;  // as Python's limit

}  // namespace

int Lexer::start(const std::vector<int>& lexemes) {
  std::vector<std::pair<int, Expr>> live;
  for (const int lexeme : lexemes)
    if (const Expr expression = lexemes_[static_cast<size_t>(lexeme)].expression; !expressions_.is_nothing(expression)) live.emplace_back(lexeme, expression);
  return made(std::move(live));
}

int Lexer::step(int state, uint8_t byte) {
  if (const int known = at(state).next[byte]; known != kUnknown) return known;
  std::vector<std::pair<int, Expr>> live;
  for (const auto& [lexeme, expression] : at(state).live) {
    const Expr next = expressions_.derive(expression, byte);
    if (!expressions_.is_nothing(next)) live.emplace_back(lexeme, next);
  }
  const int found = live.empty() ? kDead : made(std::move(live));
  return states_[static_cast<size_t>(state)]->next[byte] = found;
}

int Lexer::made(std::vector<std::pair<int, Expr>> live) {
  const auto [found, is_new] = known_.emplace(live, static_cast<int>(states_.size()));
  if (!is_new) return found->second;
  if (states_.size() >= kMostStates) throw TooComplex();
  auto state = std::make_unique<State>();
  state->next.fill(kUnknown);
  std::vector<int> ended;
  state->is_end = true;
  for (const auto& [lexeme, expression] : live) {
    if (expressions_.is_nullable(expression)) ended.push_back(lexeme);
    state->is_end = state->is_end && expression == kEmpty;
  }
  if (!ended.empty()) {
    const auto [number, is_first] = known_accepted_.emplace(ended, static_cast<int>(accepted_.size()));
    if (is_first) accepted_.push_back(ended);
    state->accepted = number->second;
  }
  state->live = std::move(live);
  states_.push_back(std::move(state));
  return found->second;
}

}  // namespace spc::constraints
