// Python's operations on texts.
#include <algorithm>

#include "../../words.h"
#include "../letter_case.h"
#include "../unicode.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

template <class Change>
std::string changed(const std::string& text, const Change& change) {
  std::string found = text;
  std::transform(found.begin(), found.end(), found.begin(), change);
  return found;
}

char lowered(char c) { return is_upper(c) ? static_cast<char>(c + 32) : c; }
char raised(char c) { return is_lower(c) ? static_cast<char>(c - 32) : c; }

}  // namespace

bool is_blank(std::string_view character) {
  const uint32_t code = unicode::decode(character, 0).code;
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string stripped(const std::string& text, const Value* characters, bool left, bool right) {
  const std::vector<std::string_view> all = characters_of(text);
  const bool has_own = characters && !characters->is_none();
  if (has_own && !characters->is_text()) throw TemplateError{"strip arg must be None or str"};
  const std::vector<std::string_view> own = has_own ? characters_of(characters->text()) : std::vector<std::string_view>();
  const auto goes = [&](std::string_view each) { return has_own ? std::find(own.begin(), own.end(), each) != own.end() : is_blank(each); };
  size_t begin = 0, end = all.size();
  while (left && begin < end && goes(all[begin])) ++begin;
  while (right && end > begin && goes(all[end - 1])) --end;
  if (begin == end) return "";
  return text.substr(static_cast<size_t>(all[begin].data() - text.data()), static_cast<size_t>(all[end - 1].data() + all[end - 1].size() - all[begin].data()));
}

std::vector<std::string_view> characters_of(const std::string& text) {
  std::vector<std::string_view> found;
  for (size_t at = 0; at < text.size();) {
    const size_t size = unicode::length(text[at]);
    found.push_back(std::string_view(text).substr(at, size));
    at += size;
  }
  return found;
}

std::string lower(const std::string& text) { return is_ascii(text) ? changed(text, lowered) : unicode::lowercase(text); }
std::string upper(const std::string& text) { return is_ascii(text) ? changed(text, raised) : unicode::uppercase(text); }

Value like(const Value& value, std::string text) { return value.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text)); }

std::string escaped(const Value& value) {
  const std::string text = value.str();
  if (value.is_markup()) return text;
  std::string found;
  for (const char c : text)
    found += c == '&' ? std::string("&amp;") : c == '<' ? std::string("&lt;") : c == '>' ? std::string("&gt;") : c == '"' ? std::string("&#34;") : c == '\'' ? std::string("&#39;") : std::string(1, c);
  return found;
}

Values lines_of(const std::string& text, bool keeps_ends) {
  static constexpr std::string_view kEnds = "\n\r\v\f\x1c\x1d\x1e", kWideEnds[] = {"\u0085", "\u2028", "\u2029"};
  Values found;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = text.compare(at, 2, "\r\n") == 0 ? 2 : unicode::length(text[at]);
    const std::string_view each = std::string_view(text).substr(at, size);
    const bool ends = kEnds.find(text[at]) != std::string_view::npos || std::find(std::begin(kWideEnds), std::end(kWideEnds), each) != std::end(kWideEnds);
    at += size;
    if (!ends) continue;
    found.emplace_back(text.substr(begin, at - begin - (keeps_ends ? 0 : size)));
    begin = at;
  }
  if (begin < text.size()) found.emplace_back(text.substr(begin));
  return found;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count, Budget& budget) {
  std::string found;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t next = from.empty() ? (at < text.size() ? at : std::string::npos) : text.find(from, at);
    if (from.empty()) {  // before each character, and at the end
      if (at > text.size()) break;
      found += to;
      if (at == text.size()) {
        ++at;
        break;
      }
      const size_t size = unicode::length(text[at]);
      found += text.substr(at, size);
      at += size;
    } else {
      if (next == std::string::npos) break;
      found += text.substr(at, next - at) + to;
      at = next + from.size();
    }
    budget.text(found.size());
  }
  if (at < text.size()) found += text.substr(at);
  budget.text(found.size());
  return found;
}

void check_arguments(const std::string& function, const Arguments& arguments, std::string_view parameters) {
  if (parameters == "*") return;
  std::vector<std::string_view> names;
  for (size_t at = 0; at < parameters.size();) {
    const size_t end = std::min(parameters.find(',', at), parameters.size());
    names.push_back(parameters.substr(at, end - at));
    at = end + 1;
  }
  if (arguments.positional.size() > names.size())
    throw TemplateError{function + "() takes at most " + std::to_string(names.size()) + " arguments, it was given " + std::to_string(arguments.positional.size())};
  for (size_t place = 0; place < names.size(); ++place) {
    if (names[place].empty() || names[place].back() != '!') continue;
    names[place].remove_suffix(1);
    if (!arguments.find(place, names[place])) throw TemplateError{function + "() is called without its argument " + std::string(names[place])};
  }
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) throw TemplateError{function + "() got an unexpected keyword argument " + python_repr(name)};
    if (place - names.begin() < static_cast<ptrdiff_t>(arguments.positional.size())) throw TemplateError{function + "() got multiple values for argument " + python_repr(name)};
  }
}

const std::string& text_argument(const Arguments& arguments, size_t place, const char* name) {
  const Value* const found = arguments.find(place, name);
  if (!found) throw TemplateError{std::string("it calls a function without its argument ") + name};
  if (!defined(*found).is_text()) throw TemplateError{std::string("it gives ") + found->type() + " as " + name + ", expected a text"};
  return found->text();
}

int64_t integer_argument(const Arguments& arguments, size_t place, const char* name, int64_t otherwise) {
  const Value* const found = arguments.find(place, name);
  if (!found || found->is_none()) return otherwise;
  if (!defined(*found).is_whole()) throw TemplateError{std::string("'") + found->type() + "' object cannot be interpreted as an integer"};
  return found->integer();
}

bool flag_argument(const Arguments& arguments, size_t place, const char* name, bool otherwise) {
  const Value* const found = arguments.find(place, name);
  return found ? found->truth() : otherwise;
}

}  // namespace spc::jinja
