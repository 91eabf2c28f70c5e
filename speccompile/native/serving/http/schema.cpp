#include "schema.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "../../words.h"

#include "errors.h"

namespace spc::http {
namespace {

constexpr size_t kShown = 80;

bool is_number(const Json& value) { return value.is_number() || value.type() == Json::Type::kBig; }

double real_of(const Json& value) { return value.type() == Json::Type::kBig ? std::strtod(value.text().c_str(), nullptr) : value.number(); }

// An integer as its sign and its digits without zeros in front.
std::pair<bool, std::string> digits_of(const Json& value) {
  std::string text = value.type() == Json::Type::kBig ? value.text() : std::to_string(value.integer());
  const bool is_negative = text[0] == '-';
  if (is_negative) text.erase(0, 1);
  return {is_negative, text};
}

// Return -1, 0 or 1, exactly between integers of any size.
int compared(const Json& one, const Json& other) {
  const auto is_whole = [](const Json& value) { return value.is_integer() || value.type() == Json::Type::kBig; };
  if (!is_whole(one) || !is_whole(other)) {
    const double left = real_of(one), right = real_of(other);
    return left < right ? -1 : left > right;
  }
  const auto [is_negative, left] = digits_of(one);
  const auto [is_other_negative, right] = digits_of(other);
  if (is_negative != is_other_negative) return is_negative ? -1 : 1;
  const int found = left.size() != right.size() ? (left.size() < right.size() ? -1 : 1) : left.compare(right);
  const int order = found < 0 ? -1 : found > 0;
  return is_negative ? -order : order;
}

bool is(const Json& value, const std::string& kind) {
  if (kind == "null") return value.is_null();
  if (kind == "boolean") return value.is_bool();
  if (kind == "string") return value.is_text();
  if (kind == "array") return value.is_list();
  if (kind == "object") return value.is_object();
  if (!is_number(value)) return false;
  const double real = real_of(value);
  if (kind == "integer") return value.type() != Json::Type::kNumber || (std::isfinite(real) && real == std::floor(real));  // 3.0 is an integer
  return value.type() != Json::Type::kNumber || std::isfinite(real);
}

bool is_same(const Json& value, const Json& other) {
  return is_number(value) && is_number(other) ? compared(value, other) == 0 : value == other;
}

std::vector<const Json*> each_of(const Json& value) {
  std::vector<const Json*> found;
  if (!value.is_list()) return {&value};
  for (const Json& each : value.list()) found.push_back(&each);
  return found;
}

std::string listed(const Json& value) {
  std::string found;
  for (const Json* const each : each_of(value)) found += (found.empty() ? "" : " or ") + (each->is_text() ? each->text() : each->dump());
  return found;
}

bool fits_type(const Json& value, const Json& kinds) {
  const std::vector<const Json*> each = each_of(kinds);
  return std::any_of(each.begin(), each.end(), [&](const Json* kind) { return is(value, kind->text()); });
}

bool fits_enum(const Json& value, const Json& known) {
  return std::any_of(known.list().begin(), known.list().end(), [&](const Json& each) { return is_same(value, each); });
}

// A keyword: whether a value is valid, and the words of its message. Values of other types are valid, as in the standard.
struct Rule {
  const char* keyword;
  bool (*is_valid)(const Json& value, const Json& rule);
  const char *before, *behind;
};

bool within(size_t size, const Json& most) { return size <= static_cast<size_t>(most.integer()); }
bool reaches(size_t size, const Json& least) { return size >= static_cast<size_t>(least.integer()); }

const Rule kRules[] = {
    {"type", fits_type, "", ""},
    {"enum", fits_enum, "", ""},
    {"minimum", [](const Json& value, const Json& rule) { return !is_number(value) || compared(value, rule) >= 0; }, "", " or more"},
    {"exclusiveMinimum", [](const Json& value, const Json& rule) { return !is_number(value) || compared(value, rule) > 0; }, "more than ", ""},
    {"maximum", [](const Json& value, const Json& rule) { return !is_number(value) || compared(value, rule) <= 0; }, "at most ", ""},
    {"minLength", [](const Json& value, const Json& rule) { return !value.is_text() || reaches(character_count(value.text()), rule); }, "", " characters or more"},
    {"maxLength", [](const Json& value, const Json& rule) { return !value.is_text() || within(character_count(value.text()), rule); }, "at most ", " characters"},
    {"minItems", [](const Json& value, const Json& rule) { return !value.is_list() || reaches(value.list().size(), rule); }, "", " items or more"},
    {"maxItems", [](const Json& value, const Json& rule) { return !value.is_list() || within(value.list().size(), rule); }, "at most ", " items"},
    {"maxProperties", [](const Json& value, const Json& rule) { return !value.is_object() || within(value.object().size(), rule); }, "at most ", " keys"},
};

// The violation of a value that matches none of several schemas: that of the first schema with its type.
std::optional<Violation> of_none(const Json& value, const Json& schemas, const std::string& where) {
  std::vector<Violation> found;
  for (const Json& schema : schemas.list()) {
    std::optional<Violation> problem = first_problem(value, schema, where);
    if (!problem) return std::nullopt;
    found.push_back(std::move(*problem));
  }
  std::vector<std::string> expected;
  for (const Violation& problem : found) {
    if (problem.where != where) return problem;
    if (std::find(expected.begin(), expected.end(), problem.expected) == expected.end()) expected.push_back(problem.expected);
  }
  std::string joined;
  for (const std::string& each : expected) joined += (joined.empty() ? "" : " or ") + each;
  return Violation{where, &value, joined};
}

std::optional<Violation> of_keys(const Json& value, const Json& schema, const std::string& where) {
  const std::string inside = where.empty() ? "" : where + ".";
  for (const Json& name : schema["required"].list())
    if (!value.find(name.text())) return Violation{inside + name.text(), nullptr, "it, which is required"};
  for (const auto& [name, each] : schema["properties"].object())
    if (const Json* const own = value.find(name))
      if (std::optional<Violation> problem = first_problem(*own, each, inside + name)) return problem;
  if (const Json* const others = schema.find("additionalProperties"))
    for (const auto& [name, own] : value.object())
      if (!schema["properties"].find(name))
        if (std::optional<Violation> problem = first_problem(own, *others, inside + name)) return problem;
  return std::nullopt;
}

}  // namespace

std::optional<Violation> first_problem(const Json& value, const Json& schema, const std::string& where) {
  for (const Rule& rule : kRules)
    if (const Json* const said = schema.find(rule.keyword); said && !rule.is_valid(value, *said))
      return Violation{where, &value, rule.before + listed(*said) + rule.behind};
  if (const Json* const schemas = schema.find("anyOf"))
    if (std::optional<Violation> problem = of_none(value, *schemas, where)) return problem;
  if (const Json* const items = schema.find("items"); items && value.is_list())
    for (size_t index = 0; index < value.list().size(); ++index)
      if (std::optional<Violation> problem = first_problem(value.list()[index], *items, where + "[" + std::to_string(index) + "]")) return problem;
  return value.is_object() ? of_keys(value, schema, where) : std::nullopt;
}

void check(const Json& value, const Json& schema) {
  const std::optional<Violation> problem = first_problem(value, schema);
  if (!problem) return;
  const std::string received = problem->received ? shown(*problem->received) : "null";
  throw RequestError(400, (problem->where.empty() ? "the body" : problem->where) + ": received " + received + ", expected " + problem->expected, problem->where);
}

std::string shown(const Json& value) {
  const size_t size = value.is_list() ? value.list().size() : value.object().size();
  if (size > kShown) return (value.is_object() ? "an object of " : "an array of ") + std::to_string(size) + " entries";
  const std::string text = value.dump();
  return character_count(text) <= kShown ? text : first_characters(text, kShown) + "..";
}

}  // namespace spc::http
