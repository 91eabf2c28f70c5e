// Tests and functions that every template has.
#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "../letter_case.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

using Kind = Value::Kind;
using Test = bool (*)(const Value& value, const Arguments& given);

const Value& other(const Arguments& given) {
  if (given.positional.size() != 1 || !given.named.empty()) throw TemplateError{"it calls a test without its argument, or with others"};
  return given.positional[0];
}

int64_t whole(const Value& value) {
  if (!defined(value).is_whole()) throw TemplateError{"it tests a " + std::string(value.type()) + ", expected an integer"};
  return value.integer();
}

bool is_multiple(const Value& value, int64_t of) {
  if (of == 0) throw TemplateError{"integer division or modulo by zero"};
  return of == -1 || whole(value) % of == 0;
}

bool is_sequence(const Value& value) { return value.is_text() || value.is_list() || value.is_dict() || value.is_undefined() || value.is(Kind::kRange); }

const std::map<std::string, Test>& tests() {
  static const Test equal = [](const Value& value, const Arguments& given) { return value.equals(other(given)); };
  static const Test unequal = [](const Value& value, const Arguments& given) { return !value.equals(other(given)); };
  static const Test less = [](const Value& value, const Arguments& given) { return compare("<", value, other(given)); };
  static const Test more = [](const Value& value, const Arguments& given) { return compare(">", value, other(given)); };
  static const Test least = [](const Value& value, const Arguments& given) { return compare(">=", value, other(given)); };
  static const Test most = [](const Value& value, const Arguments& given) { return compare("<=", value, other(given)); };
  static const std::map<std::string, Test> known = {
      {"defined", [](const Value& value, const Arguments&) { return !value.is_undefined(); }},
      {"undefined", [](const Value& value, const Arguments&) { return value.is_undefined(); }},
      {"none", [](const Value& value, const Arguments&) { return value.is_none(); }},
      {"string", [](const Value& value, const Arguments&) { return value.is_text(); }},
      {"mapping", [](const Value& value, const Arguments&) { return value.is_dict(); }},
      {"iterable", [](const Value& value, const Arguments&) { return is_sequence(value) || value.is(Kind::kGenerator) || value.is(Kind::kView); }},
      {"sequence", [](const Value& value, const Arguments&) { return is_sequence(value); }},
      {"number", [](const Value& value, const Arguments&) { return value.is_number() || value.is(Kind::kBig); }},
      {"integer", [](const Value& value, const Arguments&) { return value.is(Kind::kInteger) || value.is(Kind::kBig); }},
      {"float", [](const Value& value, const Arguments&) { return value.is(Kind::kReal); }},
      {"boolean", [](const Value& value, const Arguments&) { return value.is(Kind::kBool); }},
      {"true", [](const Value& value, const Arguments&) { return value.is(Kind::kBool) && value.truth(); }},
      {"false", [](const Value& value, const Arguments&) { return value.is(Kind::kBool) && !value.truth(); }},
      {"callable", [](const Value& value, const Arguments&) { return value.is(Kind::kFunction) || value.is_undefined(); }},
      {"even", [](const Value& value, const Arguments&) { return is_multiple(value, 2); }},
      {"odd", [](const Value& value, const Arguments&) { return !is_multiple(value, 2); }},
      {"divisibleby", [](const Value& value, const Arguments& given) { return is_multiple(value, whole(other(given))); }},
      {"lower", [](const Value& value, const Arguments&) { return unicode::is_lowercase(value.str()); }},
      {"upper", [](const Value& value, const Arguments&) { return unicode::is_uppercase(value.str()); }},
      {"sameas", [](const Value& value, const Arguments& given) { return value.kind() == other(given).kind() && value.equals(other(given)); }},
      {"in", [](const Value& value, const Arguments& given) { return compare("in", value, other(given)); }},
      {"eq", equal},     {"equalto", equal}, {"==", equal},        {"ne", unequal},    {"!=", unequal}, {"lt", less},  {"lessthan", less}, {"<", less},
      {"gt", more},      {"greaterthan", more}, {">", more},       {"ge", least},      {">=", least},   {"le", most},  {"<=", most},
  };
  return known;
}

Value range(const Arguments& given, Budget& budget) {
  const size_t count = given.positional.size();
  if (count < 1 || count > 3) throw TemplateError{"range expected 1 to 3 arguments, got " + std::to_string(count)};
  const int64_t first = count > 1 ? integer_argument(given, 0, "start", 0) : 0, last = integer_argument(given, count > 1 ? 1 : 0, "stop", 0),
                step = count > 2 ? integer_argument(given, 2, "step", 1) : 1;
  if (step == 0) throw TemplateError{"range() arg 3 must not be zero"};
  constexpr int64_t kMost = 100'000;  // as jinja2's sandbox
  Values found;
  for (int64_t at = first; step > 0 ? at < last : at > last; at += step) {
    found.emplace_back(at);
    if (static_cast<int64_t>(found.size()) > kMost) throw TemplateError{"Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."};
  }
  budget.list(found.size());
  return Value::range(std::move(found));
}

Dict merged(const Arguments& given) {
  Dict found;
  for (const Value& each : given.positional) {
    if (!each.is_dict()) throw TemplateError{"it makes a mapping of a " + std::string(each.type())};
    for (const auto& [name, value] : each.dict().items()) found.set(name, value);
  }
  for (const auto& [name, value] : given.named) found.set(name, value);
  return found;
}

// Writer of a separator at every call but the first.
Value joiner(const Arguments& given) {
  check_arguments("joiner", given, "sep");
  const Value separator = given.find(0, "sep") ? *given.find(0, "sep") : Value(", ");
  return Function([separator, is_first = std::make_shared<bool>(true)](const Arguments& none) -> Value {
    check_arguments("joiner", none, "");
    return std::exchange(*is_first, false) ? Value("") : separator;
  });
}

Value now(const Arguments& given) {
  const std::string& format = text_argument(given, 0, "format");
  constexpr size_t kMost = 1024;
  if (format.empty()) return "";
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[kMost];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  if (!size) throw TemplateError{"it asks for a date of more than 1023 bytes"};
  return std::string(text, size);
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw TemplateError{"it has the test " + python_repr(name) + ", which is not supported here"};
  static const std::set<std::string> with_argument = {"divisibleby", "sameas", "in",          "eq", "equalto", "==",          "ne", "!=", "lt",
                                                      "lessthan",    "<",      "greaterthan", ">",  "gt",      "ge", ">=", "le", "<="};
  if (!with_argument.count(name)) check_arguments(name, arguments, "");
  return found->second(value, arguments);
}

Value global(const std::string& name, Budget& budget) {
  if (name == "range") return Function([&budget](const Arguments& given) { return range(given, budget); });
  if (name == "dict") return Function([](const Arguments& given) -> Value { return merged(given); });
  if (name == "namespace") return Function([&budget](const Arguments& given) { return budget.name_space(merged(given)); });
  if (name == "joiner") return Function(joiner);
  if (name == "strftime_now") return Function(now);
  if (name == "raise_exception") return Function([](const Arguments& given) -> Value { throw TemplateError{given.positional.empty() ? "" : given.positional[0].str()}; });
  return Value::undefined(python_repr(name) + " is undefined");
}

}  // namespace spc::jinja
