// Operators, attributes and items, with Python's words for errors.
#include <algorithm>
#include <cmath>

#include "../unicode.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

constexpr const char* kNoText = "\xff";  // begins no UTF-8

std::string quoted(const Value& value) { return std::string("'") + value.type() + "'"; }

[[noreturn]] void unsupported(const std::string& name, const Value& left, const Value& right) {
  throw TemplateError{"unsupported operand type(s) for " + name + ": " + quoted(left) + " and " + quoted(right)};
}

[[noreturn]] void too_large() { throw TemplateError{"it makes an integer of more than 64 bits"}; }

int64_t floor_quotient(int64_t left, int64_t right) { return left / right - (left % right != 0 && (left < 0) != (right < 0)); }

Value whole_result(const std::string& name, int64_t left, int64_t right) {
  int64_t found = 0;
  bool is_over = false;
  if (name == "+") is_over = __builtin_add_overflow(left, right, &found);
  if (name == "-") is_over = __builtin_sub_overflow(left, right, &found);
  if (name == "*") is_over = __builtin_mul_overflow(left, right, &found);
  if (name == "//" || name == "%") {
    if (right == 0) throw TemplateError{"integer division or modulo by zero"};
    if (right == -1) return name == "%" ? Value(int64_t{0}) : whole_result("-", 0, left);
    const int64_t quotient = floor_quotient(left, right);
    found = name == "//" ? quotient : left - quotient * right;
  }
  if (is_over) too_large();
  return found;
}

Value power_of(int64_t base, int64_t exponent) {
  Value found(int64_t{1});
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 1 || base == 0) return exponent ? base : int64_t{1};
  if (exponent > 64) too_large();
  for (int64_t i = 0; i < exponent; ++i) found = whole_result("*", found.integer(), base);
  return found;
}

Value arithmetic(const std::string& name, const Value& left, const Value& right) {
  const double one = left.real(), other = right.real();
  if (name == "/") {
    if (other == 0) throw TemplateError{"division by zero"};
    return one / other;
  }
  if (left.is_whole() && right.is_whole()) return name == "**" ? power_of(left.integer(), right.integer()) : whole_result(name, left.integer(), right.integer());
  if (name == "+") return one + other;
  if (name == "-") return one - other;
  if (name == "*") return one * other;
  if (name == "**") return std::pow(one, other);
  if (other == 0) throw TemplateError{"float floor division by zero"};
  double rest = std::fmod(one, other), quotient = (one - rest) / other;  // as CPython has it, to the last bit
  if (rest != 0 && (rest < 0) != (other < 0)) {
    rest += other;
    quotient -= 1;
  }
  if (name == "%") return rest != 0 ? rest : std::copysign(0.0, other);
  const double whole = quotient != 0 ? std::floor(quotient) : std::copysign(0.0, one / other);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value repeated(const Value& value, int64_t count, Budget& budget) {
  const auto times = static_cast<size_t>(std::max<int64_t>(0, count));
  if (value.is_text()) {
    if (times && value.text().size() > (size_t{1} << 24) / times) budget.text((size_t{1} << 24) + 1);
    std::string found;
    for (size_t i = 0; i < times; ++i) found += value.text();
    budget.text(found.size());
    return like(value, std::move(found));
  }
  if (times && value.values().size() > (size_t{1} << 20) / times) budget.list((size_t{1} << 20) + 1);
  Values found;
  for (size_t i = 0; i < times; ++i) found.insert(found.end(), value.values().begin(), value.values().end());
  budget.list(found.size());
  return Value::list(std::move(found), value.is(Value::Kind::kTuple));
}

Value added(const Value& left, const Value& right, Budget& budget) {
  if (left.is_text() && right.is_text()) {
    const bool is_markup = left.is_markup() || right.is_markup();
    std::string found = is_markup ? escaped(left) + escaped(right) : left.text() + right.text();
    budget.text(found.size());
    return is_markup ? Value::markup(std::move(found)) : Value(std::move(found));
  }
  if (left.is_text()) throw TemplateError{"can only concatenate str (not \"" + std::string(right.type()) + "\") to str"};
  if (left.is_list() && left.kind() == right.kind()) {
    budget.list(left.values().size() + right.values().size());
    Values found = left.values();
    found.insert(found.end(), right.values().begin(), right.values().end());
    return Value::list(std::move(found), left.is(Value::Kind::kTuple));
  }
  if (left.is_list()) throw TemplateError{"can only concatenate " + std::string(left.type()) + " (not \"" + right.type() + "\") to " + left.type()};
  unsupported("+", left, right);
}

bool contains(const Value& container, const Value& value) {
  if (container.is_text()) {
    if (!value.is_text()) throw TemplateError{"'in <string>' requires string as left operand, not " + std::string(value.type())};
    return container.text().find(value.text()) != std::string::npos;
  }
  if (container.is_dict()) require_hashable(value);
  if (container.is_dict()) return find_key(container.dict(), value);
  if (const Value::Kind kind = container.kind(); kind == Value::Kind::kGenerator || kind == Value::Kind::kView || kind == Value::Kind::kRange) {
    const Values all = iterated(container);
    return std::any_of(all.begin(), all.end(), [&](const Value& each) { return each.equals(value); });
  }
  if (container.is_list()) return std::any_of(container.values().begin(), container.values().end(), [&](const Value& each) { return each.equals(value); });
  if (container.is_undefined()) return false;
  throw TemplateError{"argument of type " + quoted(container) + " is not iterable"};
}

int64_t bound_of(const Value& value, int64_t otherwise) {
  if (value.is_none()) return otherwise;
  if (!defined(value).is_whole()) throw TemplateError{"slice indices must be integers or None or have an __index__ method"};
  return value.integer();
}

}  // namespace

std::optional<std::string> name_of_key(const Value& key) {
  if (key.is_text()) return key.text();
  if (key.is_none()) return kNoText + std::string("None");
  const bool is_whole = key.is_whole() || (key.is(Value::Kind::kReal) && std::fabs(key.real()) < 9e15 && key.real() == std::floor(key.real()));
  if (!is_whole) return std::nullopt;
  return kNoText + std::to_string(key.is_whole() ? key.integer() : static_cast<int64_t>(key.real()));
}

Value key_of_name(const std::string& name) {
  if (name.empty() || name[0] != kNoText[0]) return name;
  return name[1] == 'N' ? Value() : Value(static_cast<int64_t>(std::stoll(name.substr(1))));
}

const Value* find_key(const Dict& dict, const Value& key) {
  const std::optional<std::string> name = name_of_key(key);
  return name ? dict.find(*name) : nullptr;
}

void require_hashable(const Value& value) {
  if (value.is_dict() || value.is(Value::Kind::kList)) throw TemplateError{std::string("unhashable type: '") + value.type() + "'"};
  if (value.is(Value::Kind::kTuple))
    for (const Value& each : value.values()) require_hashable(each);
}

const Value& defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError{value.why()};
  return value;
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined: return 0;
    case Value::Kind::kText:
      return std::count_if(value.text().begin(), value.text().end(), [](char c) { return !unicode::continues(c); });
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kRange:
    case Value::Kind::kView: return static_cast<int64_t>(value.values().size());
    case Value::Kind::kDict: return static_cast<int64_t>(value.dict().items().size());
    default: throw TemplateError{std::string("object of type '") + value.type() + "' has no len()"};
  }
}

Value binary(const std::string& name, const Value& left, const Value& right, Budget& budget) {
  defined(left);
  if (name == "%" && left.is_text()) return formatted(left, right, budget);
  defined(right).calculable();
  if (left.calculable().is_number() && right.is_number()) return arithmetic(name, left, right);
  if (name == "+") return added(left, right, budget);
  if (name == "*" && (left.is_text() || left.is_list()) && right.is_whole()) return repeated(left, right.integer(), budget);
  if (name == "*" && (right.is_text() || right.is_list()) && left.is_whole()) return repeated(right, left.integer(), budget);
  unsupported(name == "**" ? "** or pow()" : name, left, right);
}

bool is_less(const Value& left, const Value& right, const char* sign) {
  defined(left).calculable();
  defined(right).calculable();
  if (left.is_whole() && right.is_whole()) return left.integer() < right.integer();
  if (left.is_number() && right.is_number()) return left.real() < right.real();
  if (left.is_text() && right.is_text()) return left.text() < right.text();
  if (left.is_list() && left.kind() == right.kind()) {
    const Values &one = left.values(), &other = right.values();
    for (size_t i = 0; i < std::min(one.size(), other.size()); ++i)
      if (!one[i].equals(other[i])) return is_less(one[i], other[i], sign);
    return one.size() < other.size();
  }
  throw TemplateError{std::string("'") + sign + "' not supported between instances of " + quoted(left) + " and " + quoted(right)};
}

bool compare(const std::string& name, const Value& left, const Value& right) {
  if (name == "==") return left.equals(right);
  if (name == "!=") return !left.equals(right);
  if (name == "in") return contains(right, left);
  if (name == "not in") return !contains(right, left);
  if (name == "<") return is_less(left, right, "<");
  if (name == ">") return is_less(right, left, ">");
  if (name == "<=") return !is_less(right, left, "<=");
  return !is_less(left, right, ">=");
}

Value attribute(const Value& value, const std::string& name, Budget& budget) {
  defined(value);
  if (value.is(Value::Kind::kNamespace)) {
    const Value* const found = value.dict().find(name);
    if (found) return *found;
  }
  if (const Value* const found = value.named(name)) return *found;
  Value own = method(value, name, budget);
  if (!own.is_undefined()) return own;
  if (value.is_dict())
    if (const Value* const found = value.dict().find(name)) return *found;
  const std::string of = value.is_none() ? "None" : std::string("'") + value.type() + " object'";
  return Value::undefined(of + " has no attribute " + python_repr(name));
}

Value item(const Value& value, const Value& index, Budget& budget) {
  defined(value);
  if (value.is_dict())
    if (const Value* const found = find_key(value.dict(), index)) return *found;
  const bool is_sequence = value.is_list() || value.is(Value::Kind::kRange);
  if ((is_sequence || value.is_text()) && index.is_whole()) {
    const int64_t size = length_of(value), place = index.integer() < 0 ? index.integer() + size : index.integer();
    if (place < 0 || place >= size) return Value::undefined(std::string(value.type()) + " object has no element " + std::to_string(index.integer()));
    if (is_sequence) return value.values()[static_cast<size_t>(place)];
    budget.text(value.text().size());
    return like(value, std::string(characters_of(value.text())[static_cast<size_t>(place)]));
  }
  if (index.is_text()) return attribute(value, index.text(), budget);
  return Value::undefined(std::string("'") + value.type() + " object' has no element " + (index.is_undefined() ? "Undefined" : index.repr()));
}

Value slice(const Value& value, const Value& first, const Value& last, const Value& step, Budget& budget) {
  defined(value);
  const bool is_range = value.is(Value::Kind::kRange);
  if (!value.is_list() && !value.is_text() && !is_range) throw TemplateError{quoted(value) + " object is not subscriptable"};
  const int64_t by = bound_of(step, 1), size = length_of(value);
  if (by == 0) throw TemplateError{"slice step cannot be zero"};
  const auto placed = [&](int64_t at) { return std::max<int64_t>(by < 0 ? -1 : 0, std::min(at < 0 ? at + size : at, by < 0 ? size - 1 : size)); };
  const int64_t begin = first.is_none() ? (by < 0 ? size - 1 : 0) : placed(bound_of(first, 0));
  const int64_t end = last.is_none() ? (by < 0 ? -1 : size) : placed(bound_of(last, 0));
  budget.list(static_cast<size_t>(size));
  if (value.is_text()) {
    const std::vector<std::string_view> characters = characters_of(value.text());
    std::string found;
    for (int64_t at = begin; by > 0 ? at < end : at > end; at += by) found += characters[static_cast<size_t>(at)];
    return like(value, std::move(found));
  }
  Values found;
  for (int64_t at = begin; by > 0 ? at < end : at > end; at += by) found.push_back(value.values()[static_cast<size_t>(at)]);
  return is_range ? Value::range(std::move(found)) : Value::list(std::move(found), value.is(Value::Kind::kTuple));
}

}  // namespace spc::jinja
