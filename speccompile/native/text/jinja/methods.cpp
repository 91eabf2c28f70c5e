// Methods of texts and mappings. Those that would change a list or mapping are refused, as jinja2's sandbox does.
#include <algorithm>
#include <map>

#include "../../words.h"
#include "../letter_case.h"
#include "../unicode.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

// parameters: as `check_arguments` takes them.
struct Method {
  Value (*run)(const Value& self, const Arguments& arguments, Budget& budget);
  const char* parameters = "";
};
using Methods = std::map<std::string, Method>;

Values split_at(const std::string& text, const std::string& separator, int64_t most, bool from_right) {
  if (separator.empty()) throw TemplateError{"empty separator"};
  Values found;
  std::string rest = text;
  while (most < 0 || static_cast<int64_t>(found.size()) < most) {
    const size_t at = from_right ? rest.rfind(separator) : rest.find(separator);
    if (at == std::string::npos) break;
    found.emplace_back(from_right ? rest.substr(at + separator.size()) : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : rest.substr(at + separator.size());
  }
  found.emplace_back(rest);
  if (from_right) std::reverse(found.begin(), found.end());
  return found;
}

// Parts between blanks.
Values split_at_blanks(const std::string& text, int64_t most) {
  Values found;
  std::string part;
  const std::vector<std::string_view> all = characters_of(text);
  for (size_t at = 0; at < all.size(); ++at) {
    if (!is_blank(all[at])) {
      if (part.empty() && most >= 0 && static_cast<int64_t>(found.size()) == most) {  // all that is left, but for blanks at its end
        found.emplace_back(stripped(text.substr(static_cast<size_t>(all[at].data() - text.data())), nullptr, false, true));
        return found;
      }
      part += all[at];
    } else if (!part.empty()) {
      found.emplace_back(std::exchange(part, ""));
    }
  }
  if (!part.empty()) found.emplace_back(part);
  return found;
}

// The same from the end: all that is left keeps the blanks at its beginning.
Values split_at_last_blanks(const std::string& text, int64_t most) {
  Values found;
  std::string rest = stripped(text, nullptr, false, true);
  while (!rest.empty() && (most < 0 || static_cast<int64_t>(found.size()) < most)) {
    size_t begin = rest.size();
    for (size_t before = begin; before > 0; begin = before) {
      before = unicode::before(rest, before);
      if (is_blank(std::string_view(rest).substr(before))) break;
    }
    found.emplace_back(rest.substr(begin));
    rest = stripped(rest.substr(0, begin), nullptr, false, true);
  }
  if (!rest.empty()) found.emplace_back(rest);
  std::reverse(found.begin(), found.end());
  return found;
}

Value split(const Value& self, const Arguments& arguments, Budget& budget, bool from_right) {
  const Value* const separator = arguments.find(0, "sep");
  const int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
  budget.text(self.text().size());
  if (separator && !separator->is_none()) {
    Values found = split_at(self.text(), text_argument(arguments, 0, "sep"), most, from_right);
    budget.list(found.size());
    return Value::list(std::move(found));
  }
  Values found = from_right ? split_at_last_blanks(self.text(), most) : split_at_blanks(self.text(), most);
  budget.list(found.size());
  return Value::list(std::move(found));
}

// Return whether a text begins or ends with another, or with one of several.
bool has_edge(const Value& self, const Arguments& arguments, bool at_end) {
  const Value* const asked = arguments.find(0, "prefix");
  if (!asked) throw TemplateError{"it asks how a text begins or ends without saying with what"};
  const std::string& text = self.text();
  for (const Value& each : asked->is_text() ? Values{*asked} : iterated(defined(*asked))) {
    if (!each.is_text()) throw TemplateError{"startswith first arg must be str or a tuple of str, not " + std::string(each.type())};
    const std::string& part = each.text();
    if (part.size() <= text.size() && text.compare(at_end ? text.size() - part.size() : 0, part.size(), part) == 0) return true;
  }
  return false;
}

Value found_at(const Value& self, const Arguments& arguments, bool from_right) {
  const std::string &text = self.text(), &part = text_argument(arguments, 0, "sub");
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  return at == std::string::npos ? int64_t{-1} : length_of(Value(text.substr(0, at)));
}

Value place_of(const Value& self, const Arguments& arguments, bool from_right) {
  Value found = found_at(self, arguments, from_right);
  if (found.integer() < 0) throw TemplateError{"substring not found"};
  return found;
}

// The text before a part, the part, and the text behind it.
Value parted(const Value& self, const Arguments& arguments, bool from_right) {
  const std::string &text = self.text(), &part = text_argument(arguments, 0, "sep");
  if (part.empty()) throw TemplateError{"empty separator"};
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at != std::string::npos) return Value::list({text.substr(0, at), part, text.substr(at + part.size())}, true);
  return Value::list(from_right ? Values{"", "", self} : Values{self, "", ""}, true);
}

// side: where the text stands, -1 left, 0 in the middle, 1 right.
Value justified(const Value& self, const Arguments& arguments, Budget& budget, int side) {
  const Value* const own = arguments.find(1, "fillchar");
  const std::string fill = own ? text_argument(arguments, 1, "fillchar") : " ";
  if (length_of(Value(fill)) != 1) throw TemplateError{"The fill character must be exactly one character long"};
  const int64_t width = integer_argument(arguments, 0, "width", 0), missing = std::max<int64_t>(0, width - length_of(self));
  const int64_t left = side < 0 ? 0 : side > 0 ? missing : missing / 2 + (missing & width & 1);
  const auto filled = [&](int64_t count) { return binary("*", fill, count, budget).text(); };
  return filled(left) + self.text() + filled(missing - left);
}

Value zero_filled(const Value& self, const Arguments& arguments, Budget& budget) {
  const std::string& text = self.text();
  const int64_t missing = integer_argument(arguments, 0, "width", 0) - length_of(self);
  if (missing <= 0) return self;
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return text.substr(0, sign) + binary("*", "0", missing, budget).text() + text.substr(sign);
}

Value counted(const Value& self, const Arguments& arguments, Budget& /*budget*/) {
  const std::string &text = self.text(), &part = text_argument(arguments, 0, "sub");
  if (part.empty()) return length_of(self) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Return whether all characters are of some categories.
bool are_all(const Value& self, std::initializer_list<const char*> categories) {
  unicode::Set known;
  for (const char* const each : categories) known = known | unicode::category(each);
  const std::vector<std::string_view> all = characters_of(self.text());
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](std::string_view each) { return known.has(unicode::decode(each, 0).code); });
}

Value is_digit(const Value& self) {
  if (are_all(self, {"Nd"})) return true;
  if (are_all(self, {"Nd", "No"})) throw TemplateError{"it asks whether numbers of other kinds are digits, which is not supported here"};
  return false;
}

Value without_edge(const Value& self, const Arguments& arguments, bool at_end) {
  const std::string &text = self.text(), &part = text_argument(arguments, 0, "prefix");
  if (!has_edge(self, arguments, at_end)) return self;
  return at_end ? text.substr(0, text.size() - part.size()) : text.substr(part.size());
}

Value joined(const Value& self, const Arguments& arguments, Budget& budget) {
  std::string found;
  bool is_first = true;
  for (const Value& each : iterated(arguments.positional.empty() ? Value() : arguments.positional[0])) {
    if (!each.is_text()) throw TemplateError{"sequence item: expected str instance, " + std::string(each.type()) + " found"};
    found += (is_first ? "" : self.text()) + each.text();
    is_first = false;
    budget.text(found.size());
  }
  return found;
}

const Methods& text_methods() {
  static const Methods methods = {
      {"strip", {[](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), true, true); }, "/chars"}},
      {"lstrip", {[](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), true, false); }, "/chars"}},
      {"rstrip", {[](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), false, true); }, "/chars"}},
      {"split", {[](const Value& self, const Arguments& given, Budget& budget) { return split(self, given, budget, false); }, "sep,maxsplit"}},
      {"rsplit", {[](const Value& self, const Arguments& given, Budget& budget) { return split(self, given, budget, true); }, "sep,maxsplit"}},
      {"splitlines", {[](const Value& self, const Arguments& given, Budget&) { return Value::list(lines_of(self.text(), flag_argument(given, 0, "keepends", false))); }, "keepends"}},
      {"startswith", {[](const Value& self, const Arguments& given, Budget&) -> Value { return has_edge(self, given, false); }, "/prefix!"}},
      {"endswith", {[](const Value& self, const Arguments& given, Budget&) -> Value { return has_edge(self, given, true); }, "/prefix!"}},
      {"removeprefix", {[](const Value& self, const Arguments& given, Budget&) { return without_edge(self, given, false); }, "/prefix!"}},
      {"removesuffix", {[](const Value& self, const Arguments& given, Budget&) { return without_edge(self, given, true); }, "/prefix!"}},
      {"find", {[](const Value& self, const Arguments& given, Budget&) { return found_at(self, given, false); }, "/sub!"}},
      {"rfind", {[](const Value& self, const Arguments& given, Budget&) { return found_at(self, given, true); }, "/sub!"}},
      {"index", {[](const Value& self, const Arguments& given, Budget&) { return place_of(self, given, false); }, "/sub!"}},
      {"rindex", {[](const Value& self, const Arguments& given, Budget&) { return place_of(self, given, true); }, "/sub!"}},
      {"partition", {[](const Value& self, const Arguments& given, Budget&) { return parted(self, given, false); }, "/sep!"}},
      {"rpartition", {[](const Value& self, const Arguments& given, Budget&) { return parted(self, given, true); }, "/sep!"}},
      {"center", {[](const Value& self, const Arguments& given, Budget& budget) { return justified(self, given, budget, 0); }, "/width!,/fillchar"}},
      {"ljust", {[](const Value& self, const Arguments& given, Budget& budget) { return justified(self, given, budget, -1); }, "/width!,/fillchar"}},
      {"rjust", {[](const Value& self, const Arguments& given, Budget& budget) { return justified(self, given, budget, 1); }, "/width!,/fillchar"}},
      {"zfill", {zero_filled, "/width!"}},
      {"count", {counted, "/sub!"}},
      {"join", {joined, "/iterable!"}},
      {"lower", {[](const Value& self, const Arguments&, Budget&) -> Value { return lower(self.text()); }}},
      {"upper", {[](const Value& self, const Arguments&, Budget&) -> Value { return upper(self.text()); }}},
      {"title", {[](const Value& self, const Arguments&, Budget&) -> Value { return unicode::titlecase(self.text()); }}},
      {"capitalize", {[](const Value& self, const Arguments&, Budget&) -> Value { return unicode::capitalized(self.text()); }}},
      {"islower", {[](const Value& self, const Arguments&, Budget&) -> Value { return unicode::is_lowercase(self.text()); }}},
      {"isupper", {[](const Value& self, const Arguments&, Budget&) -> Value { return unicode::is_uppercase(self.text()); }}},
      {"isdigit", {[](const Value& self, const Arguments&, Budget&) { return is_digit(self); }}},
      {"isdecimal", {[](const Value& self, const Arguments&, Budget&) -> Value { return are_all(self, {"Nd"}); }}},
      {"isalpha", {[](const Value& self, const Arguments&, Budget&) -> Value { return are_all(self, {"L"}); }}},
      {"isalnum", {[](const Value& self, const Arguments&, Budget&) -> Value { return are_all(self, {"L", "N"}); }}},
      {"isspace", {[](const Value& self, const Arguments&, Budget&) -> Value { return !self.text().empty() && stripped(self.text(), nullptr, true, true).empty(); }}},
      {"replace",
       {[](const Value& self, const Arguments& given, Budget& budget) -> Value {
          return replaced(self.text(), text_argument(given, 0, "old"), text_argument(given, 1, "new"), integer_argument(given, 2, "count", -1), budget);
        },
        "/old!,/new!,/count"}},
  };
  return methods;
}

Value pairs_of(const Value& self) {
  Values found;
  for (const auto& [name, value] : self.dict().items()) found.push_back(Value::list({key_of_name(name), value}, true));
  return Value::view(std::move(found), "dict_items");
}

const Methods& dict_methods() {
  static const Methods methods = {
      {"items", {[](const Value& self, const Arguments&, Budget&) { return pairs_of(self); }}},
      {"keys", {[](const Value& self, const Arguments&, Budget&) { return Value::view(iterated(self), "dict_keys"); }}},
      {"values",
       {[](const Value& self, const Arguments&, Budget&) {
         Values found;
         for (const auto& item : self.dict().items()) found.push_back(item.second);
         return Value::view(std::move(found), "dict_values");
       }}},
      {"copy", {[](const Value& self, const Arguments&, Budget&) { return self; }}},
      {"get",
       {[](const Value& self, const Arguments& given, Budget&) {
          require_hashable(given.positional[0]);
          const Value* const found = find_key(self.dict(), given.positional[0]);
          return found ? *found : given.positional.size() > 1 ? given.positional[1] : Value();
        },
        "/key!,/default"}},
  };
  return methods;
}

const Methods& list_methods() {
  static const Methods methods = {
      {"index",
       {[](const Value& self, const Arguments& given, Budget&) -> Value {
          const Values& all = self.values();
          const auto found = std::find_if(all.begin(), all.end(), [&](const Value& each) { return each.equals(given.positional[0]); });
          if (found == all.end()) throw TemplateError{"the value is not in list"};
          return static_cast<int64_t>(found - all.begin());
        },
        "/value!"}},
      {"count",
       {[](const Value& self, const Arguments& given, Budget&) -> Value {
          const Values& all = self.values();
          return static_cast<int64_t>(std::count_if(all.begin(), all.end(), [&](const Value& each) { return each.equals(given.positional[0]); }));
        },
        "/value!"}},
  };
  return methods;
}

bool is_unsafe(const Value& value, const std::string& name) {
  static constexpr const char* kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr const char* kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) { return std::find(std::begin(names), std::end(names), name) != std::end(names); };
  return starts_with(name, "__") || (value.is_list() && has(kList)) || (value.is_dict() && has(kDict));
}

// Results of methods of a safe text are safe as well.
Value safe_result(const std::string& name, const Value& found) {
  if (name == "replace" || name == "join") throw TemplateError{"it calls " + name + " of a text that is marked as safe, which is not supported here"};
  if (found.is_text()) return Value::markup(found.text());
  if (!found.is_list()) return found;
  Values parts;
  for (const Value& each : found.values()) parts.push_back(Value::markup(each.text()));
  return Value::list(std::move(parts), found.is(Value::Kind::kTuple));
}

}  // namespace

Value method(const Value& value, const std::string& name, Budget& budget) {
  static const Methods none;
  const Methods& known = value.is_text() ? text_methods() : value.is_dict() ? dict_methods() : value.is_list() ? list_methods() : none;
  const auto found = known.find(name);
  if (found != known.end())
    return Function([&own = found->second, name, value, &budget](const Arguments& arguments) {
      budget.step();
      check_arguments(name, arguments, own.parameters);
      return value.is_markup() ? safe_result(name, own.run(value, arguments, budget)) : own.run(value, arguments, budget);
    });
  if (is_unsafe(value, name)) throw TemplateError{"access to attribute " + python_repr(name) + " of '" + value.type() + "' object is unsafe."};
  return Value::undefined("");
}

}  // namespace spc::jinja
