#include "lark_words.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "../words.h"
#include "regex.h"

namespace spc::constraints {
namespace {

using Kind = LarkWord::Kind;

constexpr std::array<const char*, 22> kSigns = {"%ignore", "%import", "->", "..", "::", ":", "=", ",", ".", "(", ")", "{", "}", "[", "]", "~", "+", "*", "?", "|", "&", "!"};

bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_large(char c) { return c >= 'A' && c <= 'Z'; }

class Words {
 public:
  explicit Words(const std::string& source) : source_(source) {}

  std::vector<LarkWord> all() {
    while (at_ < source_.size()) word();
    return std::move(found_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool next(std::string_view text) {
    if (source_.compare(at_, text.size(), text) != 0) return false;
    at_ += text.size();
    return true;
  }
  [[noreturn]] void refuse(const std::string& why) const { throw Refused{"line " + std::to_string(line_) + ": " + why}; }
  void put(Kind kind, std::string text) { found_.push_back({kind, std::move(text), line_}); }

  void word() {
    const char c = peek();
    if (c == ' ' || c == '\t') {
      ++at_;
    } else if (c == '#' || (c == '/' && peek(1) == '/')) {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else if (c == '\n' || c == '\r') {
      if (found_.empty() || found_.back().kind != Kind::kNewline) put(Kind::kNewline, "\n");
      line_ += c == '\n';
      ++at_;
    } else if (c == '"') {
      text();
    } else if (c == '/') {
      regex();
    } else if (c == '<') {
      const size_t end = source_.find_first_of("<> \t\r\n", at_ + 1);
      if (end == std::string::npos || source_[end] != '>' || end == at_ + 1) refuse("a special token without >");
      put(Kind::kSpecial, source_.substr(at_, end + 1 - at_));
      at_ = end + 1;
    } else if (is_digit(c) || ((c == '-' || c == '+') && is_digit(peek(1)))) {
      const size_t begin = at_++;
      while (is_digit(peek())) ++at_;
      put(Kind::kNumber, source_.substr(begin, at_ - begin));
    } else if (next("%json")) {
      json();
    } else if (!name()) {
      sign();
    }
  }

  bool name() {
    size_t ahead = 0;
    if (peek() == '!') ++ahead;
    if (peek(ahead) == '_' || peek(ahead) == '?') ++ahead;
    const char first = peek(ahead);
    if (!is_small(first) && !is_large(first)) return false;
    const bool is_token = is_large(first);
    if (is_token && ahead > 0 && (ahead > 1 || peek() != '_')) return false;
    const size_t begin = at_;
    at_ += ahead;
    while ((is_token ? is_large(peek()) : is_small(peek())) || is_digit(peek()) || peek() == '_' || peek() == '-') {
      if (peek() == '-' && peek(1) == '>') break;
      ++at_;
    }
    put(is_token ? Kind::kToken : Kind::kRule, source_.substr(begin, at_ - begin));
    return true;
  }

  void sign() {
    for (const char* const each : kSigns) {
      if (!next(each)) continue;
      put(Kind::kSign, each);
      return;
    }
    const size_t end = std::min(source_.find_first_of(" \t\r\n", at_), source_.size());
    refuse(python_repr(first_characters(source_.substr(at_, end - at_), 40)) + " is not known here");
  }

  void text() {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != '"') end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a text without its end");
    std::string quoted;
    for (size_t at = at_; at <= end; ++at) {  // \xHH is none of JSON's escapes
      if (source_[at] == '\\' && at < end) {
        quoted += source_[at + 1] == 'x' ? "\\u00" : source_.substr(at, 2);
        ++at;
      } else {
        quoted += source_[at];
      }
    }
    try {
      put(Kind::kText, Json::parse(quoted).text());
    } catch (const JsonError& error) {
      refuse(std::string("a text that is none: ") + error.what());
    }
    if (!is_utf8(found_.back().text)) refuse("a text with half a surrogate pair");
    at_ = end + 1;
    if (next("i")) found_.back().flags = "i";
  }

  void regex() {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != '/' && source_[end] != '\n') end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size() || source_[end] != '/' || end == at_ + 1) refuse("a regular expression without its end");
    put(Kind::kRegex, source_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    while (std::string_view("imslux").find(peek()) != std::string_view::npos && peek()) found_.back().flags += source_[at_++];
  }

  // A value of JSON, up to where its brackets close.
  void json() {
    const size_t begin = std::min(source_.find_first_not_of(" \t\r\n", at_), source_.size());
    size_t end = begin;
    int depth = 0;
    for (bool is_text = false; end < source_.size(); ++end) {
      const char c = source_[end];
      if (is_text && c == '\\')
        ++end;
      else if (c == '"')
        is_text = !is_text;
      else if (!is_text && (c == '{' || c == '['))
        ++depth;
      else if (!is_text && (c == '}' || c == ']') && --depth == 0)
        break;
    }
    if (end >= source_.size() || source_[begin] != '{') refuse("%json without an object behind it");
    put(Kind::kJson, "%json");
    try {
      found_.back().json = Json::parse(std::string_view(source_).substr(begin, end + 1 - begin));
    } catch (const JsonError& error) {
      refuse(std::string("%json: ") + error.what());
    }
    line_ += static_cast<size_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end + 1;
  }

  const std::string& source_;
  size_t at_ = 0, line_ = 1;
  std::vector<LarkWord> found_;
};

constexpr std::pair<const char*, const char*> kCommon[] = {
    {"common.DIGIT", "[0-9]"},
    {"common.HEXDIGIT", "[a-fA-F0-9]"},
    {"common.INT", "[0-9]+"},
    {"common.SIGNED_INT", "(\\+|-)?[0-9]+"},
    {"common.DECIMAL", "([0-9]+\\.[0-9]*)|(\\.[0-9]+)"},
    {"common._EXP", "[eE](\\+|-)?[0-9]+"},
    {"common.FLOAT", "([0-9]+\\.[0-9]*|\\.[0-9]+)([eE](\\+|-)?[0-9]+)?|[0-9]+[eE](\\+|-)?[0-9]+"},
    {"common.SIGNED_FLOAT", "(\\+|-)?(([0-9]+\\.[0-9]*|\\.[0-9]+)([eE](\\+|-)?[0-9]+)?|[0-9]+[eE](\\+|-)?[0-9]+)"},
    {"common.NUMBER", "([0-9]+)|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE](\\+|-)?[0-9]+)?|[0-9]+[eE](\\+|-)?[0-9]+"},
    {"common.SIGNED_NUMBER", "(\\+|-)?(([0-9]+)|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE](\\+|-)?[0-9]+)?|[0-9]+[eE](\\+|-)?[0-9]+)"},
    {"common.ESCAPED_STRING", "\\\"([^\\\"\\\\]|\\\\.)*\\\""},
    {"common.LCASE_LETTER", "[a-z]"},
    {"common.UCASE_LETTER", "[A-Z]"},
    {"common.LETTER", "[A-Za-z]"},
    {"common.WORD", "[A-Za-z]+"},
    {"common.CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"common.WS_INLINE", "[ \\t]+"},
    {"common.WS", "[ \\t\\f\\r\\n]+"},
    {"common.CR", "\\r"},
    {"common.LF", "\\n"},
    {"common.NEWLINE", "(\\r?\\n)+"},
    {"common.SH_COMMENT", "#[^\\n]*"},
    {"common.CPP_COMMENT", "//[^\\n]*"},
    {"common.C_COMMENT", "\\/\\*[^*]*\\*+(?:[^/*][^*]*\\*+)*\\/"},
    {"common.SQL_COMMENT", "--[^\\n]*"},
};

}  // namespace

std::vector<LarkWord> read_lark_words(const std::string& source) { return Words(source).all(); }

std::string common_regex(const std::string& path) {
  for (const auto& [name, regex] : kCommon)
    if (path == name) return regex;
  throw Refused{"%import: " + path + " is not known"};
}

}  // namespace spc::constraints
