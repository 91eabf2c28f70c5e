// Filters that write texts.
#include <algorithm>

#include "../letter_case.h"
#include "../unicode.h"
#include "filters.h"

namespace spc::jinja {
namespace {

// Values that are no text are written.
Value as_text(const Value& value) { return value.is_text() ? value : Value(value.str()); }

Value indented(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const width = given.find(0, "width");
  const std::string by = width && width->is_text() ? width->text() : binary("*", " ", integer_argument(given, 0, "width", 4), budget).text();
  const bool has_first = flag_argument(given, 1, "first", false), has_blank = flag_argument(given, 2, "blank", false);
  if (!defined(value).is_text()) throw TemplateError{std::string("unsupported operand type(s) for +=: '") + value.type() + "' and 'str'"};
  std::string found;
  bool is_first = true;
  for (const Value& line : lines_of(value.text() + "\n", false)) {
    if (!is_first) found += "\n";
    if (is_first ? has_first : has_blank || !line.text().empty()) found += by;
    found += line.text();
    is_first = false;
    budget.text(found.size());
  }
  return like(value, std::move(found));
}

Value safe(const Value& value, const Arguments& /*given*/, Budget& /*budget*/) { return Value::markup(value.str()); }

Value escape(const Value& value, const Arguments& /*given*/, Budget& budget) {
  std::string found = escaped(value);
  budget.text(found.size());
  return Value::markup(std::move(found));
}

Value escape_again(const Value& value, const Arguments& given, Budget& budget) { return escape(Value(value.str()), given, budget); }

// A filter's title case: of what follows a blank, a hyphen or a bracket, the first letter is upper case.
Value titled(const Value& value, const Arguments& /*given*/, Budget& budget) {
  std::string found, part;
  const auto close = [&] {
    if (part.empty()) return;
    const size_t size = unicode::length(part[0]);
    found += upper(part.substr(0, size)) + lower(part.substr(size));
    part.clear();
  };
  const std::string text = value.str();
  bool is_between = false;
  for (const std::string_view each : characters_of(text)) {
    const bool divides = is_blank(each) || (each.size() == 1 && std::string_view("-({[<").find(each[0]) != std::string_view::npos);
    if (divides != is_between) close();
    is_between = divides;
    part += each;
  }
  close();
  budget.text(found.size());
  return found;
}

Value centered(const Value& value, const Arguments& given, Budget& budget) {
  Arguments width;
  width.positional = {integer_argument(given, 0, "width", 80)};
  return method(as_text(value), "center", budget).call(width);
}

Value truncated(const Value& value, const Arguments& given, Budget& budget) {
  const int64_t length = integer_argument(given, 0, "length", 255), leeway = integer_argument(given, 3, "leeway", 5);
  const bool cuts_words = flag_argument(given, 1, "killwords", false);
  const std::string end = given.find(2, "end") ? text_argument(given, 2, "end") : "...";
  const int64_t ending = length_of(Value(end));
  if (!defined(value).is_text()) throw TemplateError{std::string("it truncates a ") + value.type() + ", which is not supported here"};
  if (length < ending) throw TemplateError{"expected length >= " + std::to_string(ending) + ", got " + std::to_string(length)};
  if (leeway < 0) throw TemplateError{"expected leeway >= 0, got " + std::to_string(leeway)};
  if (length_of(value) <= length + leeway) return value;
  const std::string kept = slice(value, Value(), Value(length - ending), Value(), budget).text();
  const size_t blank = cuts_words ? std::string::npos : kept.rfind(' ');
  return binary("+", like(value, kept.substr(0, blank)), end, budget);
}

Value word_count(const Value& value, const Arguments& /*given*/, Budget& /*budget*/) {
  static const unicode::Set letters = unicode::category("L") | unicode::category("N");
  const std::string text = value.str();
  int64_t count = 0;
  bool is_inside = false;
  for (const std::string_view each : characters_of(text)) {
    const bool is_word = each == "_" || letters.has(unicode::decode(each, 0).code);
    count += is_word && !is_inside;
    is_inside = is_word;
  }
  return count;
}

// is_query: a blank becomes a plus, and a slash is written as a number.
std::string quoted(const std::string& text, bool is_query) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string found;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte < 0x80 && (std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos);
    if (is_plain || (c == '/' && !is_query))
      found += c;
    else if (c == ' ' && is_query)
      found += '+';
    else
      found += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return found;
}

Value url_encoded(const Value& value, const Arguments& /*given*/, Budget& budget) {
  const bool has_parts = value.is_list() || value.is_dict() || value.is_undefined() || value.is(Value::Kind::kGenerator) || value.is(Value::Kind::kView) || value.is(Value::Kind::kRange);
  if (!has_parts) return quoted(value.str(), false);
  std::string found;
  for (const Value& each : iterated(value.is_dict() ? method(value, "items", budget).call({}) : value)) {
    const Values pair = iterated(defined(each));
    if (pair.size() != 2) throw TemplateError{"it encodes a value that is no pair for a URL"};
    found += (found.empty() ? "" : "&") + quoted(pair[0].str(), true) + "=" + quoted(pair[1].str(), true);
    budget.text(found.size());
  }
  return found;
}

Value attributes(const Value& value, const Arguments& given, Budget& budget) {
  if (!defined(value).is_dict()) throw TemplateError{std::string("'") + value.type() + "' object has no attribute 'items'"};
  std::string found;
  for (const auto& [key, own] : value.dict().items()) {
    const Value own_key = key_of_name(key);
    if (!own_key.is_text()) throw TemplateError{std::string("expected string or bytes-like object, got '") + own_key.type() + "'"};
    const std::string& name = own_key.text();
    if (own.is_none() || own.is_undefined()) continue;
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) throw TemplateError{"Invalid character in attribute name: " + python_repr(name)};
    found += (found.empty() ? "" : " ") + escaped(Value(name)) + "=\"" + escaped(own) + "\"";
    budget.text(found.size());
  }
  return found.empty() || !flag_argument(given, 0, "autospace", true) ? found : " " + found;
}

Value format(const Value& value, const Arguments& given, Budget& budget) {
  if (given.named.empty()) return formatted(as_text(value), Value::list(given.positional, true), budget);
  if (!given.positional.empty()) throw TemplateError{"can't handle positional and keyword arguments at the same time"};
  Dict named;
  for (const auto& [name, own] : given.named) named.set(name, own);
  return formatted(as_text(value), named, budget);
}

// Python's attribute, never an item.
Value own_attribute(const Value& value, const Arguments& given, Budget& budget) {
  const std::string& name = text_argument(given, 0, "name");
  return defined(value).is_dict() ? method(value, name, budget) : attribute(value, name, budget);
}

}  // namespace

const Filters& text_filters() {
  static const Filters known = {
      {"trim", {[](const Value& value, const Arguments& given, Budget&) { return like(value, stripped(value.str(), given.find(0, "chars"), true, true)); }, "chars"}},
      {"upper", {[](const Value& value, const Arguments&, Budget&) { return like(value, upper(value.str())); }}},
      {"lower", {[](const Value& value, const Arguments&, Budget&) { return like(value, lower(value.str())); }}},
      {"capitalize", {[](const Value& value, const Arguments&, Budget&) { return like(value, unicode::capitalized(value.str())); }}},
      {"title", {titled}},
      {"string", {[](const Value& value, const Arguments&, Budget&) { return as_text(value); }}},
      {"safe", {safe}},
      {"replace",
       {[](const Value& value, const Arguments& given, Budget& budget) -> Value {
          return replaced(value.str(), given.find(0, "old")->str(), given.find(1, "new")->str(), integer_argument(given, 2, "count", -1), budget);
        },
        "old!,new!,count"}},
      {"indent", {indented, "width,first,blank"}}, {"escape", {escape}},        {"e", {escape}},          {"forceescape", {escape_again}},
      {"center", {centered, "width"}},             {"wordcount", {word_count}},  {"urlencode", {url_encoded}}, {"xmlattr", {attributes, "autospace"}},
      {"truncate", {truncated, "length,killwords,end,leeway"}}, {"attr", {own_attribute, "name!"}},  {"format", {format, KnownFilter::kAny}},
      {"pprint", {pretty_printed}},                {"striptags", {without_tags}}, {"wordwrap", {word_wrapped, "width,break_long_words,wrapstring,break_on_hyphens"}},
  };
  return known;
}

}  // namespace spc::jinja
