#include "expressions.h"

#include <algorithm>
#include <utility>

namespace spc::constraints {
namespace {

constexpr size_t kMostNodes = 400'000;   // some hundred bytes each
constexpr size_t kMostSearched = 20'000;  // expressions that a search for a text looks at

std::string key_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

uint32_t power_of_ten(uint32_t digits) {
  uint32_t found = 1;
  while (digits-- > 0) found *= 10;
  return found;
}

}  // namespace

Expressions::Expressions() {
  made(Kind::kNothing, {}, false, false);
  made(Kind::kEmpty, {}, true, true);
}

Expr Expressions::made(Kind kind, std::vector<uint32_t> args, bool nullable, bool positive) {
  std::string key(1, static_cast<char>(kind));
  key += key_of(args.data(), args.size() * sizeof(uint32_t));
  const auto [found, is_new] = known_.emplace(std::move(key), static_cast<Expr>(nodes_.size()));
  if (!is_new) return found->second;
  if (nodes_.size() >= kMostNodes) throw TooComplex();
  nodes_.push_back({kind, nullable, positive, std::move(args)});
  return found->second;
}

Expr Expressions::bytes(const Bytes& set) {
  if (set.none()) return kNothing;
  const auto [found, is_new] = known_sets_.emplace(set.to_string(), static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return made(Kind::kBytes, {found->second}, false, true);
}

Expr Expressions::literal(std::string_view text) {
  Expr found = kEmpty;
  for (size_t at = text.size(); at-- > 0;) found = sequence(bytes(Bytes().set(static_cast<unsigned char>(text[at]))), found);
  return found;
}

Expr Expressions::any_text() { return repeated(character(~unicode::Set()), 0, kUnlimited); }

Expr Expressions::sequence(Expr first, Expr second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  std::vector<Expr> parts;  // sequences lean to the right: the first part is none
  while (nodes_[first].kind == Kind::kSequence) {
    parts.push_back(nodes_[first].args[0]);
    first = nodes_[first].args[1];
  }
  parts.push_back(first);
  for (size_t at = parts.size(); at-- > 0;) {
    const Node &left = nodes_[parts[at]], &right = nodes_[second];
    const bool nullable = left.nullable && right.nullable, positive = left.positive && right.positive;
    second = made(Kind::kSequence, {parts[at], second}, nullable, positive);
  }
  return second;
}

// Return the parts of expressions of this kind, sorted, each once.
std::vector<Expr> Expressions::flattened(Kind kind, const std::vector<Expr>& parts) const {
  std::vector<Expr> found;
  for (const Expr part : parts) {
    const Node& node = nodes_[part];
    if (node.kind == kind)
      found.insert(found.end(), node.args.begin(), node.args.end());
    else
      found.push_back(part);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Expr Expressions::either(std::vector<Expr> options) {
  const Expr all = everything();
  Bytes single;
  std::vector<Expr> kept;
  for (const Expr option : flattened(Kind::kEither, options)) {
    if (option == all) return all;
    if (nodes_[option].kind == Kind::kBytes)
      single |= sets_[nodes_[option].args[0]];
    else if (option != kNothing)
      kept.push_back(option);
  }
  if (single.any()) kept.push_back(bytes(single));
  if (kept.empty()) return kNothing;
  if (kept.size() == 1) return kept[0];
  std::sort(kept.begin(), kept.end());
  const bool nullable = std::any_of(kept.begin(), kept.end(), [&](Expr each) { return nodes_[each].nullable; });
  const bool positive = std::any_of(kept.begin(), kept.end(), [&](Expr each) { return nodes_[each].positive; });
  return made(Kind::kEither, std::move(kept), nullable, positive);
}

Expr Expressions::both(std::vector<Expr> parts) {
  const Expr all = everything();
  Bytes single;
  single.set();
  bool has_single = false;
  std::vector<Expr> kept;
  for (const Expr part : flattened(Kind::kBoth, parts)) {
    if (part == kNothing) return kNothing;
    if (nodes_[part].kind == Kind::kBytes) {
      single &= sets_[nodes_[part].args[0]];
      has_single = true;
    } else if (part != all) {
      kept.push_back(part);
    }
  }
  if (has_single) {
    if (single.none()) return kNothing;
    kept.push_back(bytes(single));
  }
  if (kept.empty()) return all;
  if (kept.size() == 1) return kept[0];
  std::sort(kept.begin(), kept.end());
  const bool nullable = std::all_of(kept.begin(), kept.end(), [&](Expr each) { return nodes_[each].nullable; });
  if (kept[0] == kEmpty) return nullable ? kEmpty : kNothing;
  return made(Kind::kBoth, std::move(kept), nullable, nullable);
}

Expr Expressions::negated(Expr expression) {
  const Node& node = nodes_[expression];
  if (node.kind == Kind::kNegated) return node.args[0];
  const bool nullable = !node.nullable;
  return made(Kind::kNegated, {expression}, nullable, nullable);
}

Expr Expressions::repeated(Expr expression, uint32_t least, uint32_t most) {
  if (most == 0 || expression == kEmpty) return kEmpty;
  if (expression == kNothing) return least ? kNothing : kEmpty;
  if (least == 1 && most == 1) return expression;
  const Node& node = nodes_[expression];
  if (node.nullable) least = 0;
  if (node.kind == Kind::kRepeat && node.args[1] == 0 && node.args[2] == kUnlimited) return expression;
  const bool nullable = least == 0, positive = nullable || node.positive;
  return made(Kind::kRepeat, {expression, least, most}, nullable, positive);
}

Expr Expressions::multiple(uint32_t coefficient, uint32_t digits) {
  return remainder(coefficient, coefficient, digits, false);  // not zero yet: the empty text is no number
}

Expr Expressions::remainder(uint32_t divisor, uint32_t left, uint32_t digits, bool is_fraction) {
  if (is_fraction && digits == 0) return left == 0 ? kEmpty : kNothing;
  return made(Kind::kRemainder, {divisor, left, digits, is_fraction}, left == 0, !is_fraction || left == 0);
}

Expr Expressions::derive_remainder(const std::vector<uint32_t>& args, uint8_t byte) {
  const uint32_t divisor = args[0], left = args[1], digits = args[2];
  const bool is_fraction = args[3] != 0;
  if (byte == '.' && !is_fraction && digits) return remainder(divisor, left, digits, true);
  if (byte < '0' || byte > '9') return kNothing;
  const uint32_t after = digits - is_fraction;
  const uint64_t shifted = is_fraction ? left : static_cast<uint64_t>(left) * 10;
  return remainder(divisor, static_cast<uint32_t>((shifted + static_cast<uint64_t>(byte - '0') * power_of_ten(after)) % divisor), after, is_fraction);
}

Expr Expressions::derive(Expr expression, uint8_t byte) {
  const Kind kind = nodes_[expression].kind;
  if (kind == Kind::kNothing || kind == Kind::kEmpty) return kNothing;
  if (kind == Kind::kBytes) return sets_[nodes_[expression].args[0]][byte] ? kEmpty : kNothing;
  const uint64_t key = static_cast<uint64_t>(expression) << 8 | byte;
  if (const auto found = derivatives_.find(key); found != derivatives_.end()) return found->second;
  if (derivatives_.size() > 10 * kMostNodes) throw TooComplex();
  const Level level(depth_);
  const Node node = nodes_[expression];  // a copy: nodes move as others are made
  const Expr found = derived(node, byte);
  derivatives_.emplace(key, found);
  return found;
}

Expr Expressions::derived(const Node& node, uint8_t byte) {
  switch (node.kind) {
    case Kind::kSequence: {
      const Expr first = sequence(derive(node.args[0], byte), node.args[1]);
      return nodes_[node.args[0]].nullable ? either({first, derive(node.args[1], byte)}) : first;
    }
    case Kind::kRepeat: {
      const Expr first = derive(node.args[0], byte);
      if (first == kNothing) return kNothing;
      const uint32_t least = node.args[1], most = node.args[2];
      return sequence(first, repeated(node.args[0], least ? least - 1 : 0, most == kUnlimited ? most : most - 1));
    }
    case Kind::kNegated: return negated(derive(node.args[0], byte));
    case Kind::kRemainder: return derive_remainder(node.args, byte);
    default: break;
  }
  std::vector<Expr> parts;
  for (const Expr part : node.args) {
    parts.push_back(derive(part, byte));
    if (node.kind == Kind::kBoth && parts.back() == kNothing) return kNothing;
  }
  return node.kind == Kind::kBoth ? both(std::move(parts)) : either(std::move(parts));
}

bool Expressions::is_nothing(Expr expression) {
  if (expression == kNothing) return true;
  if (nodes_[expression].positive) return false;
  if (const auto known = nothing_.find(expression); known != nothing_.end()) return known->second;
  std::vector<Expr> seen = {expression};
  std::unordered_map<Expr, bool> is_seen = {{expression, true}};
  std::vector<size_t> before = {0};  // where each was found
  for (size_t at = 0; at < seen.size(); ++at) {
    const auto known = nothing_.find(seen[at]);
    if (nodes_[seen[at]].positive || (known != nothing_.end() && !known->second)) {
      for (size_t on = at;; on = before[on]) {  // all on the way here match something
        nothing_[seen[on]] = false;
        if (on == 0) return false;
      }
    }
    if (seen.size() > kMostSearched) throw TooComplex();
    for (int byte = 0; byte < 256; ++byte) {
      const Expr next = derive(seen[at], static_cast<uint8_t>(byte));
      if (next == kNothing || !is_seen.emplace(next, true).second) continue;
      seen.push_back(next);
      before.push_back(at);
    }
  }
  for (const Expr each : seen) nothing_[each] = true;
  return true;
}

bool Expressions::matches(Expr expression, std::string_view bytes) {
  for (const char byte : bytes) expression = derive(expression, static_cast<uint8_t>(byte));
  return is_nullable(expression);
}

}  // namespace spc::constraints
