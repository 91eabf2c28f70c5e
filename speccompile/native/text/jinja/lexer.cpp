#include "lexer.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "../../words.h"
#include "../unicode.h"
#include "value.h"

namespace spc::jinja {
namespace {

constexpr const char* kBlanks = " \t\n\r\v\f";

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }

std::string with_plain_newlines(const std::string& source) {
  std::string found;
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r' && at + 1 < source.size() && source[at + 1] == '\n') continue;
    found += source[at] == '\r' ? '\n' : source[at];
  }
  if (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(with_plain_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next();
    add(Token::Type::kLast, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError{message, line_}; }

  void add(Token::Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  // Take the text up to `end`.
  void pass(size_t end) {
    line_ += std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    at_ = end;
  }

  size_t next_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos && at + 1 < source_.size(); at = source_.find('{', at + 1))
      if (std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) return at;
    return source_.size();
  }

  // The text before the next tag, and the tag.
  void next() {
    const size_t tag = next_tag();
    std::string text = source_.substr(at_, tag - at_);
    const char kind = tag < source_.size() ? source_[tag + 1] : '\0', sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (kind && sign == '-')
      text.erase(text.find_last_not_of(kBlanks) + 1);
    else if ((kind == '%' || kind == '#') && sign != '+')
      strip_line(text);
    if (!text.empty()) add(Token::Type::kText, text);
    pass(tag);
    if (!kind) return;
    const size_t begin = tag + 2 + (sign == '-' || (sign == '+' && kind != '{') ? 1 : 0);
    if (kind == '#') return comment(begin);
    if (kind == '%' && raw(begin)) return;
    add(kind == '{' ? Token::Type::kOutput : Token::Type::kTag, "");
    pass(begin);
    inside(kind == '{' ? "}}" : "%}");
  }

  // Drop blanks between the beginning of a line and its tag.
  void strip_line(std::string& text) const {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    if (newline == std::string::npos && !begins_line_) return;
    if (text.find_first_not_of(kBlanks, begin) == std::string::npos) text.erase(begin);
  }

  // Take the end of a tag, whose sign is at `at`: what follows may be dropped.
  void close(size_t at, bool trims) {
    const char sign = source_[at];
    size_t end = at + (sign == '-' || sign == '+' ? 3 : 2);
    if (sign == '-')
      end = std::min(source_.find_first_not_of(kBlanks, end), source_.size());
    else if (trims && sign != '+' && end < source_.size() && source_[end] == '\n')
      ++end;
    begins_line_ = end > 0 && source_[end - 1] == '\n';
    pass(end);
  }

  void comment(size_t begin) {
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const size_t sign = end > begin && (source_[end - 1] == '-' || source_[end - 1] == '+') ? end - 1 : end;
    pass(sign);
    close(sign, true);
  }

  // A tag whose words are `word` alone, from `begin` on, and which may close with + as `plus` says. Return where it closes, npos
  // if it is another one.
  size_t tag_of(const char* word, size_t begin, bool plus) const {
    size_t at = std::min(source_.find_first_not_of(kBlanks, begin), source_.size());
    if (source_.compare(at, std::strlen(word), word) != 0) return std::string::npos;
    at = std::min(source_.find_first_not_of(kBlanks, at + std::strlen(word)), source_.size());
    const size_t end = at + (source_[at] == '-' || (plus && source_[at] == '+'));
    return source_.compare(end, 2, "%}") == 0 ? at : std::string::npos;
  }

  bool raw(size_t begin) {
    const size_t sign = tag_of("raw", begin, false);
    if (sign == std::string::npos) return false;
    pass(sign);
    close(sign, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const bool has_sign = tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
      const size_t end = tag_of("endraw", tag + 2 + has_sign, true);
      if (end == std::string::npos) continue;
      std::string text = source_.substr(at_, tag - at_);
      if (has_sign && source_[tag + 2] == '-')
        text.erase(text.find_last_not_of(kBlanks) + 1);
      else if (!has_sign)
        strip_line(text);
      if (!text.empty()) add(Token::Type::kText, text);
      pass(end);
      close(end, true);
      return true;
    }
    fail("Missing end of raw directive");
  }

  void inside(const char* end) {
    std::string open;  // brackets that are not closed
    for (;;) {
      pass(std::min(source_.find_first_not_of(kBlanks, at_), source_.size()));
      if (at_ >= source_.size()) fail(std::string("unexpected end of template, expected '") + end + "'");
      const char c = source_[at_];
      const bool has_sign = (c == '-' || (c == '+' && end[0] == '%')) && source_.compare(at_ + 1, 2, end) == 0;
      if (open.empty() && (has_sign || source_.compare(at_, 2, end) == 0)) {
        add(Token::Type::kEnd, end);
        return close(at_, end[0] == '%');
      }
      if (is_letter(c))
        word();
      else if (is_digit(c))
        number();
      else if (c == '"' || c == '\'')
        string(c);
      else
        sign(open);
    }
  }

  void word() {
    size_t end = at_;
    while (end < source_.size() && (is_letter(source_[end]) || is_digit(source_[end]))) ++end;
    add(Token::Type::kName, source_.substr(at_, end - at_));
    pass(end);
  }

  void number() {
    std::string digits;
    size_t end = at_;
    bool is_real = false;
    const auto take = [&] {
      for (; end < source_.size() && (is_digit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1]))); ++end)
        if (source_[end] != '_') digits += source_[end];
    };
    take();
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      is_real = true;
      digits += source_[end++];
      take();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < source_.size() && is_digit(source_[end + 1 + sign])) {
        is_real = true;
        digits += source_.substr(end, 1 + sign);
        end += 1 + sign;
        take();
      }
    }
    if (!is_real && digits.size() > 18) fail("it has an integer of more than 18 digits");
    add(is_real ? Token::Type::kReal : Token::Type::kInteger, digits);
    pass(end);
  }

  void string(char quote) {
    std::string text;
    size_t end = at_ + 1;
    for (; end < source_.size() && source_[end] != quote; ++end) {
      if (source_[end] == '\\' && end + 1 < source_.size())
        end = escape(end + 1, text);
      else
        text += source_[end];
    }
    if (end >= source_.size()) fail("unexpected char " + python_repr(std::string(1, quote)) + ": a text does not end");
    add(Token::Type::kString, text);
    pass(end + 1);
  }

  // Add what an escape says, whose letter is at `at`. Return the place of its last letter.
  size_t escape(size_t at, std::string& text) const {
    static constexpr char kLetters[] = "\\'\"abfnrtv", kMeanings[] = "\\'\"\a\b\f\n\r\t\v";
    const char letter = source_[at];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits) {
      const std::string code = source_.substr(at + 1, digits);
      if (code.size() < digits || code.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) fail("a text has an escape without its digits");
      const unsigned long value = std::stoul(code, nullptr, 16);
      if (value > unicode::kLast || (value >= 0xD800 && value < 0xE000)) fail("a text has an escape of no character");
      unicode::append(text, static_cast<uint32_t>(value));
      return at + digits;
    }
    if (letter == '\n') return at;
    if (letter == 'N') fail("a text has a character by its name, which is not supported here");
    if (letter >= '0' && letter <= '7') {
      const size_t end = std::min({source_.find_first_not_of("01234567", at), at + 3, source_.size()});
      unicode::append(text, static_cast<uint32_t>(std::stoul(source_.substr(at, end - at), nullptr, 8)));
      return end - 1;
    }
    const char* const place = std::strchr(kLetters, letter);
    if (place && letter)
      text += kMeanings[place - kLetters];
    else
      text += std::string("\\") + letter;
    return at;
  }

  void sign(std::string& open) {
    static constexpr const char* kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")",
                                             "{",  "}",  ">",  "<",  "=",  ".",  ":", "|", ",", ";"};
    for (const char* const each : kSigns) {
      if (source_.compare(at_, std::strlen(each), each) != 0) continue;
      if (std::strchr("([{", each[0])) open += each[0];
      if (std::strchr(")]}", each[0])) {
        const char wanted = each[0] == ')' ? '(' : each[0] == ']' ? '[' : '{';
        if (open.empty() || open.back() != wanted) fail(std::string("unexpected '") + each + "'");
        open.pop_back();
      }
      add(Token::Type::kOperator, each);
      return pass(at_ + std::strlen(each));
    }
    fail("unexpected char " + python_repr(std::string(1, source_[at_])));
  }

  const std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool begins_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& source) { return Lexer(source).run(); }

}  // namespace spc::jinja
