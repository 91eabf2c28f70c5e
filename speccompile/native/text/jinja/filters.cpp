// Filters of jinja2 that prompts need: here those of lists and mappings. Another one is refused by its name.
#include <algorithm>

#include "../unicode.h"
#include "filters.h"

namespace spc::jinja {
namespace {

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

// Return the path that an argument names, "" without one. A filter that takes it by name alone has no place for it.
constexpr size_t kByName = 1 << 20;
std::string path_argument(const Arguments& given, size_t place, const char* name = "attribute") {
  const Value* const found = given.find(place, name);
  if (!found || found->is_none()) return "";
  if (defined(*found).is_text()) return found->text();
  if (!found->is_whole() || found->integer() < 0) throw TemplateError{std::string("it gives ") + found->type() + " as attribute, which is not supported here"};
  return std::to_string(found->integer());
}

// Return the default in place of an undefined value, if there is one.
Value or_default(Value value, const Value* otherwise) { return value.is_undefined() && otherwise && !otherwise->is_none() ? *otherwise : value; }

// Return what a filter compares: an attribute of the value, a text in lower case if case is ignored.
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

// Sort by attributes with commas between them: they are compared as a list, even a single one.
Value sort(const Value& value, const Arguments& given, Budget& budget) {
  const bool is_reverse = flag_argument(given, 0, "reverse", false), minds_case = flag_argument(given, 1, "case_sensitive", false);
  const std::string paths = path_argument(given, 2);
  Values keyed;
  for (const Value& each : iterated(value)) {
    Values keys;
    for (size_t at = 0; at <= paths.size();) {
      const size_t comma = std::min(paths.find(',', at), paths.size());
      keys.push_back(key_of(each, paths.substr(at, comma - at), !minds_case, budget));
      at = comma + 1;
    }
    keyed.push_back(Value::list({Value::list(std::move(keys)), each}, true));
  }
  Values found;
  for (const Value& each : sorted(std::move(keyed), "0", false, is_reverse, budget)) found.push_back(each.values()[1]);
  return Value::list(std::move(found));
}

Value dictsort(const Value& value, const Arguments& given, Budget& budget) {
  const bool minds_case = flag_argument(given, 0, "case_sensitive", false), is_reverse = flag_argument(given, 2, "reverse", false);
  const std::string by = given.find(1, "by") ? text_argument(given, 1, "by") : "key";
  if (by != "key" && by != "value") throw TemplateError{"You can only sort by either \"key\" or \"value\""};
  if (!defined(value).is_dict()) throw TemplateError{std::string("it sorts a ") + value.type() + " as a mapping"};
  return Value::list(sorted(iterated(method(value, "items", budget).call({})), by == "value" ? "1" : "0", !minds_case, is_reverse, budget));
}

Value unique(const Value& value, const Arguments& given, Budget& budget) {
  Values found, seen;
  for (const Value& each : iterated(value)) {
    const Value key = key_of(each, path_argument(given, 1), !flag_argument(given, 0, "case_sensitive", false), budget);
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
  const std::string path = path_argument(given, 1), between = separator ? separator->str() : "";
  std::string found;
  bool is_first = true;
  for (const Value& each : iterated(value)) {
    if (!is_first) found += between;
    is_first = false;
    found += at_path(each, path, budget).str();
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
  const bool by_name = given.positional.empty();
  const std::string path = by_name ? path_argument(given, kByName) : "";
  const Value* const otherwise = by_name ? given.find(kByName, "default") : nullptr;
  if (by_name) check_arguments("map", given, "attribute!,default");
  for (const Value& each : iterated(value)) {
    if (by_name) {
      found.push_back(or_default(at_path(each, path, budget), otherwise));
    } else {
      found.push_back(apply_filter(text_argument(given, 0, "filter"), each, without_first(given, 1), budget));
    }
    budget.step();
  }
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

// JSON with letters beyond ASCII by their numbers, in halves above U+FFFF.
std::string escaped_beyond_ascii(const std::string& json) {
  std::string found;
  const auto add = [&](uint32_t code) {
    char text[8];
    std::snprintf(text, sizeof text, "\\u%04x", code);
    found += text;
  };
  for (const std::string_view each : characters_of(json)) {
    const uint32_t code = unicode::decode(each, 0).code;
    if (code < 0x80) {
      found += each;
    } else if (code < 0x10000) {
      add(code);
    } else {
      add(0xD800 + ((code - 0x10000) >> 10));
      add(0xDC00 + ((code - 0x10000) & 0x3FF));
    }
  }
  return found;
}

Value tojson(const Value& value, const Arguments& given, Budget& budget) {
  const int64_t indent = integer_argument(given, 1, "indent", -1);
  int way = static_cast<int>(std::min<int64_t>(indent < 0 ? -1 : indent, 100));
  if (const Value* const separators = given.find(2, "separators"); separators && !separators->is_none()) {
    const bool is_compact = separators->equals(Value::list({Value(","), Value(":")}, true)), is_usual = separators->equals(Value::list({Value(", "), Value(": ")}, true));
    if (way >= 0 || (!is_compact && !is_usual)) throw TemplateError{"it calls tojson with other separators than (',', ':'), which is not supported here"};
    if (is_compact) way = Json::kCompact;
  }
  std::string found = defined(value).json().dump(way, flag_argument(given, 3, "sort_keys", false));
  if (flag_argument(given, 0, "ensure_ascii", false)) found = escaped_beyond_ascii(found);
  budget.text(found.size());
  return found;
}

// Python sorts by the keys, and jinja2 shows that of a group's first member as it is written.
Value groupby(const Value& value, const Arguments& given, Budget& budget) {
  const std::string path = path_argument(given, 0);
  const Value* const otherwise = given.find(1, "default");
  const bool minds_case = flag_argument(given, 2, "case_sensitive", false);
  const auto own = [&](const Value& each) {
    return or_default(at_path(each, path, budget), otherwise);
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

Value sliced(const Value& value, const Arguments& given, Budget& budget) {
  const Values all = iterated(value);
  const int64_t count = integer_argument(given, 0, "slices", 0), size = static_cast<int64_t>(all.size());
  const Value* const fill = given.find(1, "fill_with");
  if (count == 0) throw TemplateError{"integer division or modulo by zero"};
  budget.list(static_cast<size_t>(std::max<int64_t>(count, 0)));
  Values found;
  auto next = all.begin();
  for (int64_t number = 0; number < count; ++number) {  // the first ones have what is left over
    const int64_t own = size / count + (number < size % count);
    Values part(next, next + own);
    next += own;
    if (fill && !fill->is_none() && number >= size % count) part.push_back(*fill);
    found.push_back(Value::list(std::move(part)));
  }
  return Value::generator(std::move(found));
}

Value extreme(const Value& value, const Arguments& given, Budget& budget, bool is_most) {
  const Values all = iterated(value);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const bool ignores_case = !flag_argument(given, 0, "case_sensitive", false);
  const Values order = sorted(all, path_argument(given, 1), ignores_case, is_most, budget);
  return order[0];
}

Value sum(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const start = given.find(1, "start");
  const std::string path = path_argument(given, 0);
  Value found = start ? *start : Value(int64_t{0});
  if (found.is_text()) throw TemplateError{"sum() can't sum strings [use ''.join(seq) instead]"};
  for (const Value& each : iterated(value)) found = binary("+", found, at_path(each, path, budget), budget);
  return found;
}

Value reversed(const Value& value) {
  Values found = iterated(value);
  std::reverse(found.begin(), found.end());
  if (value.is(Value::Kind::kGenerator)) return Value::list(std::move(found));
  if (!value.is_text()) return Value::generator(std::move(found));
  std::string text;
  for (const Value& each : found) text += each.text();
  return like(value, std::move(text));
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

Value first(const Value& value, const Arguments& /*given*/, Budget& /*budget*/) {
  const Values all = value.is(Value::Kind::kGenerator) ? value.taken(1) : iterated(value);
  return all.empty() ? Value::undefined("No first item, sequence was empty.") : all.front();
}

Value last(const Value& value, const Arguments& /*given*/, Budget& /*budget*/) {
  if (value.is(Value::Kind::kGenerator)) throw TemplateError{"'generator' object is not reversible"};
  const Values all = iterated(value);
  return all.empty() ? Value::undefined("No last item, sequence was empty.") : all.back();
}

const Filters& list_filters() {
  static constexpr const char* kAny = KnownFilter::kAny;
  static const KnownFilter length = {[](const Value& value, const Arguments&, Budget&) -> Value { return length_of(value); }};
  static const Filters known = {
      {"length", length},
      {"count", length},
      {"list", {[](const Value& value, const Arguments&, Budget&) { return Value::list(iterated(value)); }}},
      {"items", {items}},
      {"first", {first}},
      {"last", {last}},
      {"reverse", {[](const Value& value, const Arguments&, Budget&) { return reversed(value); }}},
      {"select", {[](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, false, true); }, kAny}},
      {"reject", {[](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, false, false); }, kAny}},
      {"selectattr", {[](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, true, true); }, kAny}},
      {"rejectattr", {[](const Value& value, const Arguments& given, Budget& budget) { return chosen(value, given, budget, true, false); }, kAny}},
      {"min", {[](const Value& value, const Arguments& given, Budget& budget) { return extreme(value, given, budget, false); }, "case_sensitive,attribute"}},
      {"max", {[](const Value& value, const Arguments& given, Budget& budget) { return extreme(value, given, budget, true); }, "case_sensitive,attribute"}},
      {"default", {otherwise, "default_value,boolean"}},
      {"d", {otherwise, "default_value,boolean"}},
      {"join", {join, "d,attribute"}},
      {"map", {map, kAny}},
      {"sort", {sort, "reverse,case_sensitive,attribute"}},
      {"dictsort", {dictsort, "case_sensitive,by,reverse"}},
      {"unique", {unique, "case_sensitive,attribute"}},
      {"tojson", {tojson, "ensure_ascii,indent,separators,sort_keys"}},
      {"sum", {sum, "attribute,start"}},
      {"groupby", {groupby, "attribute!,default,case_sensitive"}},
      {"batch", {batch, "linecount!,fill_with"}},
      {"slice", {sliced, "slices!,fill_with"}},
  };
  return known;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget) {
  for (const Filters* const each : {&list_filters(), &text_filters(), &number_filters()}) {
    const auto found = each->find(name);
    if (found == each->end()) continue;
    budget.step();
    check_arguments(name, arguments, found->second.parameters);
    return found->second.run(value, arguments, budget);
  }
  throw TemplateError{"it has the filter " + python_repr(name) + ", which is not supported here"};
}

}  // namespace spc::jinja
