// Python's operations on texts. Upper case is refused for letters beyond ASCII, and never left out silently.
// Their lower case is that of the tokenizers.
#include <algorithm>

#include "../forms.h"
#include "../unicode.h"
#include "builtins.h"

namespace spc::jinja {
namespace {

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void require_ascii(const std::string& text, const char* what) {
  if (!is_ascii(text)) throw TemplateError{std::string("it writes letters beyond ASCII in ") + what + ", which is not supported here"};
}

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

std::string lower(const std::string& text) {
  if (is_ascii(text)) return changed(text, lowered);
  if (text.find("\u03a3") != std::string::npos) throw TemplateError{"it writes a sigma in lower case, whose form depends on its place, which is not supported here"};
  return lowercase(NormalizedString{text, {}, false}).text;
}

std::string upper(const std::string& text) {
  require_ascii(text, "upper case");
  return changed(text, raised);
}

std::string capitalized(const std::string& text) {
  if (!text.empty()) require_ascii(text.substr(0, 1), "upper case");
  std::string found = lower(text);
  if (!found.empty()) found[0] = raised(found[0]);
  return found;
}

std::string titled(const std::string& text) {
  require_ascii(text, "title case");
  std::string found = text;
  bool is_inside = false;
  for (char& each : found) {
    each = is_inside ? lowered(each) : raised(each);
    is_inside = is_lower(each) || is_upper(each);
  }
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
