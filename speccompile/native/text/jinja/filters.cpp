// Filters of jinja2 that prompts need. Another one is refused by its name.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "builtins.h"

namespace spc::jinja {
namespace {

using Filter = Value (*)(const Value& value, const Arguments& given, Budget& budget);

// Return the value at a path of names and numbers with dots between them; the value itself for "".
Value at_path(Value value, const std::string& path, Budget& budget) {
  for (size_t at = 0; at < path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string name = path.substr(at, dot - at);
    const bool is_number = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    value = item(value, is_number ? Value(static_cast<int64_t>(std::stoll(name))) : Value(name), budget);
    at = dot + 1;
  }
  return value;
}

std::string named(const Arguments& given, const char* name) {
  const Value* const found = given.find(given.positional.size(), name);
  return found && found->is_text() ? found->text() : "";
}

// By what a filter orders or compares: an attribute, and texts without regard to their case.
Value key_of(const Value& value, const std::string& path, bool ignores_case, Budget& budget) {
  const Value found = at_path(value, path, budget);
  return ignores_case && found.is_text() ? Value(lower(found.text())) : found;
}

Values sorted(Values values, const std::string& path, bool ignores_case, bool is_reverse, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& each : values) keyed.emplace_back(key_of(each, path, ignores_case, budget), each);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& one, const auto& other) {
    budget.step();
    return is_reverse ? is_less(other.first, one.first) : is_less(one.first, other.first);
  });
  Values found;
  for (auto& each : keyed) found.push_back(std::move(each.second));
  return found;
}

Value sort(const Value& value, const Arguments& given, Budget& budget) {
  const bool is_reverse = flag_argument(given, 0, "reverse", false), minds_case = flag_argument(given, 1, "case_sensitive", false);
  const Value* const path = given.find(2, "attribute");
  return Value::list(sorted(iterated(value), path && path->is_text() ? path->text() : "", !minds_case, is_reverse, budget));
}

Value dictsort(const Value& value, const Arguments& given, Budget& budget) {
  const bool minds_case = flag_argument(given, 0, "case_sensitive", false), is_reverse = flag_argument(given, 2, "reverse", false);
  const Value* const by = given.find(1, "by");
  const std::string place = by && by->is_text() && by->text() == "value" ? "1" : "0";
  if (!defined(value).is_dict()) throw TemplateError{std::string("it sorts a ") + value.type() + " as a mapping"};
  return Value::list(sorted(iterated(method(value, "items", budget).call({})), place, !minds_case, is_reverse, budget));
}

Value unique(const Value& value, const Arguments& given, Budget& budget) {
  Values found, seen;
  for (const Value& each : iterated(value)) {
    const Value key = key_of(each, named(given, "attribute"), !flag_argument(given, 0, "case_sensitive", false), budget);
    budget.step();
    require_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return other.equals(key); })) continue;
    seen.push_back(key);
    found.push_back(each);
  }
  return Value::generator(std::move(found));
}

Value join(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const separator = given.find(0, "d");
  const Value* const path = given.find(1, "attribute");
  const std::string between = separator ? defined(*separator).str() : "";
  std::string found;
  bool is_first = true;
  for (const Value& each : iterated(value)) {
    if (!is_first) found += between;
    is_first = false;
    found += (path && path->is_text() ? at_path(each, path->text(), budget) : each).str();
    budget.text(found.size());
  }
  return found;
}

Arguments without_first(const Arguments& given, size_t count) {
  Arguments found;
  found.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, given.positional.size())), given.positional.end());
  found.named = given.named;
  return found;
}

// Like jinja2's filter, return an empty generator for a false value, None included.
Value map(const Value& value, const Arguments& given, Budget& budget) {
  if (!value.truth()) return Value::generator({});
  Values found;
  const std::string path = named(given, "attribute");
  const Value* const otherwise = given.find(given.positional.size(), "default");
  for (const Value& each : iterated(value)) {
    if (given.positional.empty()) {
      Value own = at_path(each, path, budget);
      found.push_back(own.is_undefined() && otherwise ? *otherwise : own);
    } else {
      found.push_back(apply_filter(text_argument(given, 0, "filter"), each, without_first(given, 1), budget));
    }
    budget.step();
  }
  if (given.positional.empty() && path.empty()) throw TemplateError{"map requires a filter argument"};
  return Value::generator(std::move(found));
}

// select, reject, selectattr, rejectattr; empty for a false value.
Value chosen(const Value& value, const Arguments& given, Budget& budget, bool by_attribute, bool wanted) {
  if (!value.truth()) return Value::generator({});
  const size_t own = by_attribute ? 1 : 0;
  const std::string path = by_attribute ? text_argument(given, 0, "attribute") : "";
  Values found;
  for (const Value& each : iterated(value)) {
    const Value tried = at_path(each, path, budget);
    const bool fits = given.positional.size() > own ? apply_test(text_argument(given, own, "test"), tried, without_first(given, own + 1)) : tried.truth();
    if (fits == wanted) found.push_back(each);
    budget.step();
  }
  return Value::generator(std::move(found));
}

Value indented(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const width = given.find(0, "width");
  const std::string by = width && width->is_text() ? width->text() : std::string(static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(integer_argument(given, 0, "width", 4), 1000))), ' ');
  const bool has_first = flag_argument(given, 1, "first", false), has_blank = flag_argument(given, 2, "blank", false);
  if (!defined(value).is_text()) throw TemplateError{std::string("unsupported operand type(s) for +=: '") + value.type() + "' and 'str'"};
  const std::string& text = value.text();
  std::string found;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const bool is_first = at == 0, is_empty = end == at;
    if ((!is_first || has_first) && (!is_empty || has_blank)) found += by;
    found += text.substr(at, end - at) + (end < text.size() ? "\n" : "");
    at = end + 1;
    budget.text(found.size());
  }
  return found;
}

Value tojson(const Value& value, const Arguments& given, Budget& budget) {
  for (const auto& [name, asked] : given.named)
    if (name != "indent" && name != "sort_keys" && name != "ensure_ascii" && name != "separators") throw TemplateError{"it calls tojson with " + name + ", which is not supported here"};
  const Value* const ascii = given.find(0, "ensure_ascii");
  if (ascii && ascii->truth()) throw TemplateError{"it calls tojson with ensure_ascii, which is not supported here"};
  const int64_t indent = integer_argument(given, 1, "indent", -1);
  int way = static_cast<int>(std::min<int64_t>(indent < 0 ? -1 : indent, 100));
  if (const Value* const separators = given.find(2, "separators"); separators && !separators->is_none()) {
    const bool is_compact = separators->equals(Value::list({Value(","), Value(":")}, true)), is_usual = separators->equals(Value::list({Value(", "), Value(": ")}, true));
    if (way >= 0 || (!is_compact && !is_usual)) throw TemplateError{"it calls tojson with other separators than (',', ':'), which is not supported here"};
    if (is_compact) way = Json::kCompact;
  }
  std::string found = defined(value).json().dump(way, flag_argument(given, 3, "sort_keys", false));
  budget.text(found.size());
  return found;
}

Value integer(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const int64_t otherwise = integer_argument(given, 0, "default", 0);
  if (defined(value).is_whole()) return value.integer();
  if (value.is(Value::Kind::kReal)) return std::fabs(value.real()) < 9e18 ? static_cast<int64_t>(value.real()) : otherwise;
  if (!value.is_text()) return otherwise;
  const std::string text = stripped(value.text(), nullptr, true, true);
  char* end = nullptr;
  const double real = std::strtod(text.c_str(), &end);
  return !text.empty() && !*end && std::fabs(real) < 9e15 ? static_cast<int64_t>(real) : otherwise;
}

Value real(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const Value* const otherwise = given.find(0, "default");
  if (defined(value).is_number()) return value.real();
  const std::string text = value.is_text() ? stripped(value.text(), nullptr, true, true) : "";
  char* end = nullptr;
  const double found = std::strtod(text.c_str(), &end);
  if (!text.empty() && !*end) return found;
  return otherwise ? *otherwise : Value(0.0);
}

Value round(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const int64_t digits = std::max<int64_t>(-15, std::min<int64_t>(integer_argument(given, 0, "precision", 0), 15));
  const Value* const way = given.find(1, "method");
  const double by = std::pow(10.0, static_cast<double>(digits)), number = defined(value).real() * by;
  if (!value.is_number()) throw TemplateError{std::string("type ") + value.type() + " doesn't define __round__ method"};
  const std::string name = way && way->is_text() ? way->text() : "common";
  if (name == "common" && digits >= 0) {  // as in Python: the decimal that is closest to the number itself, integers stay such
    if (value.is_whole()) return value.integer();
    char written[400];
    std::snprintf(written, sizeof written, "%.*f", static_cast<int>(digits), value.real());
    return std::strtod(written, nullptr);
  }
  if (name == "common" && value.is_whole()) return static_cast<int64_t>(std::nearbyint(number) / by);
  return (name == "ceil" ? std::ceil(number) : name == "floor" ? std::floor(number) : std::nearbyint(number)) / by;
}

// Python sorts by the keys, and jinja2 shows that of a group's first member as it is written.
Value groupby(const Value& value, const Arguments& given, Budget& budget) {
  const std::string path = text_argument(given, 0, "attribute");
  const Value* const otherwise = given.find(1, "default");
  const bool minds_case = flag_argument(given, 2, "case_sensitive", false);
  const auto own = [&](const Value& each) {
    const Value found = at_path(each, path, budget);
    return found.is_undefined() && otherwise ? *otherwise : found;
  };
  const auto key = [&](const Value& found) { return !minds_case && found.is_text() ? Value(lower(found.text())) : found; };
  Values pairs;
  for (const Value& each : iterated(value)) pairs.push_back(Value::list({key(own(each)), each}, true));
  Values found, members;
  const Values order = sorted(std::move(pairs), "0", false, false, budget);
  for (size_t place = 0; place < order.size(); ++place) {
    members.push_back(order[place].values()[1]);
    if (place + 1 < order.size() && order[place + 1].values()[0].equals(order[place].values()[0])) continue;
    Value name = own(members[0]);
    found.push_back(Value::group(std::move(name), std::exchange(members, {})));
  }
  return Value::list(std::move(found));
}

Value batch(const Value& value, const Arguments& given, Budget& budget) {
  const int64_t size = integer_argument(given, 0, "linecount", 0);
  const Value* const fill = given.find(1, "fill_with");
  Values found, part;
  for (const Value& each : iterated(value)) {
    if (static_cast<int64_t>(part.size()) == size) found.push_back(Value::list(std::exchange(part, {})));
    part.push_back(each);
  }
  budget.list(static_cast<size_t>(std::max<int64_t>(size, 0)));
  while (!part.empty() && fill && !fill->is_none() && static_cast<int64_t>(part.size()) < size) part.push_back(*fill);
  if (!part.empty()) found.push_back(Value::list(std::move(part)));
  return Value::generator(std::move(found));
}

Value extreme(const Value& value, const Arguments& given, Budget& budget, bool is_most) {
  const Values all = iterated(value);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const bool ignores_case = !flag_argument(given, 0, "case_sensitive", false);
  const Value* const path = given.find(1, "attribute");
  const std::string by = path && path->is_text() ? path->text() : "";
  const Values order = sorted(all, by, ignores_case, is_most, budget);
  return order[0];
}

Value sum(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const start = given.find(1, "start");
  const Value* const path = given.find(0, "attribute");
  Value found = start ? *start : Value(int64_t{0});
  for (const Value& each : iterated(value)) found = binary("+", found, path && path->is_text() ? at_path(each, path->text(), budget) : each, budget);
  return found;
}

Value escaped(const Value& value, const Arguments& /*given*/, Budget& budget) {
  std::string found;
  for (const char c : value.str()) {
    found += c == '&' ? std::string("&amp;") : c == '<' ? std::string("&lt;") : c == '>' ? std::string("&gt;") : c == '"' ? std::string("&#34;") : c == '\'' ? std::string("&#39;") : std::string(1, c);
  }
  budget.text(found.size());
  return found;
}

Value reversed(const Value& value) {
  Values found = iterated(value);
  std::reverse(found.begin(), found.end());
  if (value.is(Value::Kind::kGenerator)) return Value::list(std::move(found));
  if (!value.is_text()) return Value::generator(std::move(found));
  std::string text;
  for (const Value& each : found) text += each.text();
  return text;
}

Value otherwise(const Value& value, const Arguments& given, Budget& /*budget*/) {
  const Value* const found = given.find(0, "default_value");
  const bool counts_false = flag_argument(given, 1, "boolean", false);
  return value.is_undefined() || (counts_false && !value.truth()) ? (found ? *found : Value("")) : value;
}

Value items(const Value& value, const Arguments& /*given*/, Budget& budget) {
  if (value.is_undefined()) return Value::generator({});
  if (!value.is_dict()) throw TemplateError{"Can only get item pairs from a mapping."};
  return Value::generator(iterated(method(value, "items", budget).call({})));
}

Value absolute(const Value& value, const Arguments& /*given*/, Budget& budget) {
  if (!defined(value).is_number()) throw TemplateError{std::string("bad operand type for abs(): '") + value.type() + "'"};
  if (!value.is_whole()) return std::fabs(value.real());
  return value.integer() < 0 ? binary("-", int64_t{0}, value, budget) : Value(value.integer());
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> known = {
      {"trim", [](const Value& value, const Arguments& given, Budget&) -> Value { return stripped(value.str(), given.find(0, "chars"), true, true); }},
      {"length", [](const Value& value, const Arguments&, Budget&) -> Value { return length_of(value); }},
      {"count", [](const Value& value, const Arguments&, Budget&) -> Value { return length_of(value); }},
      {"upper", [](const Value& value, const Arguments&, Budget&) -> Value { return upper(value.str()); }},
      {"lower", [](const Value& value, const Arguments&, Budget&) -> Value { return lower(value.str()); }},
      {"capitalize", [](const Value& value, const Arguments&, Budget&) -> Value { return capitalized(value.str()); }},
      {"title", [](const Value& value, const Arguments&, Budget&) -> Value { return titled(value.str()); }},
      {"string", [](const Value& value, const Arguments&, Budget&) -> Value { return value.str(); }},
      {"safe", [](const Value& value, const Arguments&, Budget&) -> Value { return value.str(); }},
      {"list", [](const Value& value, const Arguments&, Budget&) { return Value::list(iterated(value)); }},
      {"items", items},
      {"first",
       [](const Value& value, const Arguments&, Budget&) {
         const Values all = value.is(Value::Kind::kGenerator) ? value.taken(1) : iterated(value);
         return all.empty() ? Value::undefined("No first item, sequence was empty.") : all.front();
       }},
      {"last",
       [](const Value& value, const Arguments&, Budget&) {
         if (value.is(Value::Kind::kGenerator)) throw TemplateError{"'generator' object is not reversible"};
         const Values all = iterated(value);
         return all.empty() ? Value::undefined("No last item, sequence was empty.") : all.back();
       }},
      {"replace",
       [](const Value& value, const Arguments& given, Budget& budget) -> Value {
         return replaced(value.str(), text_argument(given, 0, "old"), text_argument(given, 1, "new"), integer_argument(given, 2, "count", -1), budget);
       }},
      {"reverse", [](const Value& value, const Arguments&, Budget&) { return reversed(value); }},
      {"abs", absolute},
      {"select", [](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, false, true); }},
      {"reject", [](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, false, false); }},
      {"selectattr", [](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, true, true); }},
      {"rejectattr", [](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, true, false); }},
      {"min", [](const Value& value, const Arguments& given, Budget& budget) { return extreme(value, given, budget, false); }},
      {"max", [](const Value& value, const Arguments& given, Budget& budget) { return extreme(value, given, budget, true); }},
      {"default", otherwise}, {"d", otherwise},       {"escape", escaped}, {"e", escaped},   {"join", join},         {"map", map},   {"sort", sort},
      {"dictsort", dictsort}, {"unique", unique},     {"indent", indented}, {"tojson", tojson}, {"int", integer},   {"float", real}, {"round", round},
      {"sum", sum},           {"groupby", groupby},   {"batch", batch},     {"forceescape", escaped},
  };
  return known;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw TemplateError{"it has the filter " + python_repr(name) + ", which is not supported here"};
  budget.step();
  return found->second(value, arguments, budget);
}

}  // namespace spc::jinja
