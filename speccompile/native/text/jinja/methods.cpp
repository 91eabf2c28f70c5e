// Methods of texts and mappings. Those that would change a list or mapping are refused, as jinja2's sandbox does.
#include <algorithm>
#include <map>

#include "builtins.h"

namespace spc::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments, Budget& budget);

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

Value split(const Value& self, const Arguments& arguments, Budget& budget, bool from_right) {
  const Value* const separator = arguments.find(0, "sep");
  const int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
  budget.text(self.text().size());
  if (separator && !separator->is_none()) {
    Values found = split_at(self.text(), text_argument(arguments, 0, "sep"), most, from_right);
    budget.list(found.size());
    return Value::list(std::move(found));
  }
  if (from_right && most >= 0) throw TemplateError{"it calls rsplit without a separator, which is not supported here"};
  Values found = split_at_blanks(self.text(), most);
  budget.list(found.size());
  return Value::list(std::move(found));
}

Values lines_of(const std::string& text, bool keeps_ends) {
  Values found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\r\v\f\x1c\x1d\x1e", at), text.size());
    const size_t next = end < text.size() ? end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1) : end;
    found.emplace_back(text.substr(at, (keeps_ends ? next : end) - at));
    at = next;
  }
  return found;
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
  if (arguments.positional.size() > 1) throw TemplateError{"it calls find with bounds, which is not supported here"};
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  return at == std::string::npos ? int64_t{-1} : length_of(Value(text.substr(0, at)));
}

Value counted(const Value& self, const Arguments& arguments, Budget& /*budget*/) {
  const std::string &text = self.text(), &part = text_argument(arguments, 0, "sub");
  if (part.empty()) return length_of(self) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool are_all(const std::string& text, bool (*fits)(char)) { return !text.empty() && std::all_of(text.begin(), text.end(), fits); }

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

const std::map<std::string, Method>& text_methods() {
  static const std::map<std::string, Method> methods = {
      {"strip", [](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), true, true); }},
      {"lstrip", [](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), true, false); }},
      {"rstrip", [](const Value& self, const Arguments& given, Budget&) -> Value { return stripped(self.text(), given.find(0, "chars"), false, true); }},
      {"split", [](const Value& self, const Arguments& given, Budget& budget) { return split(self, given, budget, false); }},
      {"rsplit", [](const Value& self, const Arguments& given, Budget& budget) { return split(self, given, budget, true); }},
      {"splitlines", [](const Value& self, const Arguments& given, Budget&) { return Value::list(lines_of(self.text(), flag_argument(given, 0, "keepends", false))); }},
      {"startswith", [](const Value& self, const Arguments& given, Budget&) -> Value { return has_edge(self, given, false); }},
      {"endswith", [](const Value& self, const Arguments& given, Budget&) -> Value { return has_edge(self, given, true); }},
      {"removeprefix", [](const Value& self, const Arguments& given, Budget&) { return without_edge(self, given, false); }},
      {"removesuffix", [](const Value& self, const Arguments& given, Budget&) { return without_edge(self, given, true); }},
      {"find", [](const Value& self, const Arguments& given, Budget&) { return found_at(self, given, false); }},
      {"rfind", [](const Value& self, const Arguments& given, Budget&) { return found_at(self, given, true); }},
      {"count", counted},
      {"join", joined},
      {"lower", [](const Value& self, const Arguments&, Budget&) -> Value { return lower(self.text()); }},
      {"upper", [](const Value& self, const Arguments&, Budget&) -> Value { return upper(self.text()); }},
      {"title", [](const Value& self, const Arguments&, Budget&) -> Value { return titled(self.text()); }},
      {"capitalize", [](const Value& self, const Arguments&, Budget&) -> Value { return capitalized(self.text()); }},
      {"isdigit", [](const Value& self, const Arguments&, Budget&) -> Value { return are_all(self.text(), [](char c) { return c >= '0' && c <= '9'; }); }},
      {"isspace", [](const Value& self, const Arguments&, Budget&) -> Value { return !self.text().empty() && stripped(self.text(), nullptr, true, true).empty(); }},
      {"replace",
       [](const Value& self, const Arguments& given, Budget& budget) -> Value {
         return replaced(self.text(), text_argument(given, 0, "old"), text_argument(given, 1, "new"), integer_argument(given, 2, "count", -1), budget);
       }},
  };
  return methods;
}

Value pairs_of(const Value& self) {
  Values found;
  for (const auto& [name, value] : self.dict().items()) found.push_back(Value::list({Value(name), value}, true));
  return Value::view(std::move(found), "dict_items");
}

const std::map<std::string, Method>& dict_methods() {
  static const std::map<std::string, Method> methods = {
      {"items", [](const Value& self, const Arguments&, Budget&) { return pairs_of(self); }},
      {"keys", [](const Value& self, const Arguments&, Budget&) { return Value::view(iterated(self), "dict_keys"); }},
      {"values",
       [](const Value& self, const Arguments&, Budget&) {
         Values found;
         for (const auto& item : self.dict().items()) found.push_back(item.second);
         return Value::view(std::move(found), "dict_values");
       }},
      {"copy", [](const Value& self, const Arguments&, Budget&) { return self; }},
      {"get",
       [](const Value& self, const Arguments& given, Budget&) {
         const Value* const name = given.find(0, "key");
         const Value* const found = name && name->is_text() ? self.dict().find(name->text()) : nullptr;
         const Value* const otherwise = given.find(1, "default");
         return found ? *found : otherwise ? *otherwise : Value();
       }},
  };
  return methods;
}

const std::map<std::string, Method>& list_methods() {
  static const std::map<std::string, Method> methods = {
      {"index",
       [](const Value& self, const Arguments& given, Budget&) -> Value {
         const Values& all = self.values();
         const auto found = std::find_if(all.begin(), all.end(), [&](const Value& each) { return !given.positional.empty() && each.equals(given.positional[0]); });
         if (found == all.end()) throw TemplateError{"the value is not in list"};
         return static_cast<int64_t>(found - all.begin());
       }},
      {"count",
       [](const Value& self, const Arguments& given, Budget&) -> Value {
         const Values& all = self.values();
         return static_cast<int64_t>(std::count_if(all.begin(), all.end(), [&](const Value& each) { return !given.positional.empty() && each.equals(given.positional[0]); }));
       }},
  };
  return methods;
}

bool is_unsafe(const Value& value, const std::string& name) {
  static constexpr const char* kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr const char* kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) { return std::find(std::begin(names), std::end(names), name) != std::end(names); };
  return name.rfind("__", 0) == 0 || (value.is_list() && has(kList)) || (value.is_dict() && has(kDict));
}

}  // namespace

Value method(const Value& value, const std::string& name, Budget& budget) {
  static const std::map<std::string, Method> none;
  const std::map<std::string, Method>& known = value.is_text() ? text_methods() : value.is_dict() ? dict_methods() : value.is_list() ? list_methods() : none;
  const auto found = known.find(name);
  if (found != known.end())
    return Function([run = found->second, value, &budget](const Arguments& arguments) {
      budget.step();
      return run(value, arguments, budget);
    });
  if (is_unsafe(value, name)) throw TemplateError{"access to attribute " + python_repr(name) + " of '" + value.type() + "' object is unsafe."};
  return Value::undefined("");
}

}  // namespace spc::jinja
