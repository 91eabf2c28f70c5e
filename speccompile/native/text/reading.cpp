#include "reading.h"

#include "unicode.h"

namespace spc {
namespace {

[[noreturn]] void expected(const char* what, const char* name, const Json& found) {
  throw InvalidTokenizer{std::string("expected ") + what + " for '" + name + "', found " + found.python_type()};
}

}  // namespace

const std::string& read_text(const Json& owner, const char* name) {
  const Json& value = owner[name];
  if (!value.is_text()) expected("text", name, value);
  return value.text();
}

bool read_flag(const Json& owner, const char* name) {
  const Json& value = owner[name];
  if (!value.is_bool()) expected("true or false", name, value);
  return value.boolean();
}

bool read_flag(const Json& owner, const char* name, bool otherwise) {
  return owner[name].is_null() ? otherwise : read_flag(owner, name);
}

uint32_t read_number(const Json& value, const char* name) {
  const bool fits = value.is_integer() && value.integer() >= 0 && value.integer() < UINT32_MAX;
  if (!fits) expected("a number of 32 bits", name, value);
  return static_cast<uint32_t>(value.integer());
}

uint32_t read_character(const Json& owner, const char* name) {
  const std::string& text = read_text(owner, name);
  if (text.empty() || unicode::length(text[0]) != text.size()) expected("one character", name, owner[name]);
  return unicode::decode(text, 0).code;
}

const Json::List& read_list(const Json& owner, const char* name) {
  const Json& value = owner[name];
  if (!value.is_list()) expected("a list", name, value);
  return value.list();
}

Pattern read_pattern(const Json& owner) {
  const Json& pattern = owner["pattern"];
  if (pattern.object().size() != 1) expected("a pattern", "pattern", pattern);
  if (pattern.find("String")) return Pattern::literal(read_text(pattern, "String"));
  return read_regex(read_text(pattern, "Regex"));
}

Pattern read_regex(const std::string& source) {
  try {
    return Pattern(source);
  } catch (const PatternError& error) {
    const std::string what = "pattern " + python_repr(source) + ": " + error.what;
    if (error.kind == PatternError::kBroken) throw InvalidTokenizer{what};
    throw UnsupportedComponent{what};
  }
}

}  // namespace spc
