#include "json.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_map>

namespace spc {
namespace {

constexpr int kDeepest = 500;
constexpr size_t kMostDigits = 4300;  // of an integer, as in Python

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    Json value = parse(0);
    skip_blanks();
    if (at_ != text_.size()) fail("Extra data", at_);
    return value;
  }

 private:
  [[noreturn]] void fail(const char* what, size_t at) const {
    // Python counts characters, not bytes
    size_t line = 1, column = 1, characters = 0;
    for (size_t i = 0; i < at && i < text_.size(); ++i) {
      if ((static_cast<unsigned char>(text_[i]) & 0xC0) == 0x80) continue;
      ++characters;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    throw JsonError(std::string(what) + ": line " + std::to_string(line) + " column " + std::to_string(column) + " (char " +
                    std::to_string(characters) + ")");
  }

  void skip_blanks() {
    const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json parse(int depth) {
    if (depth > kDeepest) throw JsonError("nested too deeply");
    skip_blanks();
    const char next = at_ < text_.size() ? text_[at_] : '\0';
    if (next == '{') return object(depth);
    if (next == '[') return list(depth);
    if (next == '"') return Json(string());
    if (next >= '0' && next <= '9') return number();
    if (take("null")) return {};
    if (take("true")) return Json(true);
    if (take("false")) return Json(false);
    if (take("NaN")) return Json(std::numeric_limits<double>::quiet_NaN());
    if (take("Infinity")) return Json(std::numeric_limits<double>::infinity());
    if (take("-Infinity")) return Json(-std::numeric_limits<double>::infinity());
    return number();
  }

  Json list(int depth) {
    ++at_;
    Json::List found;
    skip_blanks();
    if (take("]")) return Json(std::move(found));
    for (;;) {
      found.push_back(parse(depth + 1));
      skip_blanks();
      if (take("]")) return Json(std::move(found));
      if (!take(",")) fail("Expecting ',' delimiter", at_);
    }
  }

  Json object(int depth) {
    ++at_;
    Json::Object found;
    skip_blanks();
    if (take("}")) return Json(std::move(found));
    for (;;) {
      skip_blanks();
      if (at_ >= text_.size() || text_[at_] != '"') fail("Expecting property name enclosed in double quotes", at_);
      std::string name = string();
      skip_blanks();
      if (!take(":")) fail("Expecting ':' delimiter", at_);
      Json value = parse(depth + 1);
      found.emplace_back(std::move(name), std::move(value));
      skip_blanks();
      if (take("}")) return Json(each_once(std::move(found)));
      if (!take(",")) fail("Expecting ',' delimiter", at_);
    }
  }

  // Return the members with each name once: the last value, in the place of the first. Done at the end, when names no longer move.
  static Json::Object each_once(Json::Object members) {
    std::unordered_map<std::string_view, size_t> places(members.size());
    bool is_so = true;
    for (size_t i = 0; i < members.size() && is_so; ++i) is_so = places.emplace(members[i].first, i).second;
    if (is_so) return members;
    Json::Object kept;
    std::unordered_map<std::string, size_t> at;
    for (Json::Member& each : members) {
      const auto [place, is_new] = at.emplace(each.first, kept.size());
      if (is_new)
        kept.push_back(std::move(each));
      else
        kept[place->second].second = std::move(each.second);
    }
    return kept;
  }

  size_t digits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  Json number() {
    const size_t start = at_;
    take("-");
    if (!take("0") && !digits()) fail("Expecting value", start);
    size_t end = at_;
    bool is_whole = true;
    if (take(".") && digits()) {
      end = at_;
      is_whole = false;
    }
    at_ = end;
    if (take("e") || take("E")) {
      if (!take("+")) take("-");
      if (digits()) {
        end = at_;
        is_whole = false;
      }
    }
    at_ = end;
    const std::string_view text = text_.substr(start, end - start);
    return is_whole ? integer(text) : Json(real(text));
  }

  static Json integer(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return Json(value);
    const size_t digits = text.size() - (text[0] == '-');
    if (digits > kMostDigits)
      throw JsonError("Exceeds the limit (" + std::to_string(kMostDigits) + " digits) for integer string conversion: value has " + std::to_string(digits) + " digits");
    return Json::big(std::string(text));
  }

  static double real(std::string_view text) {
    double value = 0;
    const auto found = std::from_chars(text.data(), text.data() + text.size(), value);
    if (found.ec != std::errc::result_out_of_range) return value;
    // from_chars does not say which end: an exponent below zero, or digits that begin with 0., are too small
    const size_t e = text.find_first_of("eE");
    const bool small = e != std::string_view::npos ? text[e + 1] == '-' : text.substr(text[0] == '-')[0] == '0';
    const double end = small ? 0.0 : std::numeric_limits<double>::infinity();
    return text[0] == '-' ? -end : end;
  }

  std::string string() {
    const size_t begin = at_++;
    std::string found;
    for (;;) {
      const size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
      found.append(text_, start, at_ - start);
      if (at_ >= text_.size()) fail("Unterminated string starting at", begin);
      if (text_[at_] == '"') {
        ++at_;
        return found;
      }
      if (text_[at_] != '\\') fail("Invalid control character at", at_);
      escape(begin, found);
    }
  }

  void escape(size_t begin, std::string& found) {
    if (++at_ >= text_.size()) fail("Unterminated string starting at", begin);
    const char letter = text_[at_];
    if (letter != 'u') {
      static constexpr char kLetters[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
      const char* place = letter ? std::strchr(kLetters, letter) : nullptr;
      if (!place) fail("Invalid \\escape", at_ - 1);
      found += kMeanings[place - kLetters];
      ++at_;
      return;
    }
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      const size_t before = at_++;
      const uint32_t low = hex4();
      if (low >= 0xDC00 && low < 0xE000)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      else
        at_ = before;
    }
    append_utf8(found, code);
  }

  // Four hexadecimal digits behind the u where `at_` is.
  uint32_t hex4() {
    uint32_t code = 0;
    const char* start = text_.data() + at_ + 1;
    const bool whole = at_ + 5 <= text_.size();
    const auto [end, error] = std::from_chars(start, whole ? start + 4 : start, code, 16);
    if (!whole || error != std::errc() || end != start + 4) fail("Invalid \\uXXXX escape", at_);
    at_ += 5;
    return code;
  }

  static void append_utf8(std::string& to, uint32_t code) {
    if (code < 0x80) {
      to += static_cast<char>(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static constexpr unsigned kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    to += static_cast<char>(kFirst[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) {
  const size_t invalid = first_invalid_utf8(text);
  if (invalid != std::string_view::npos) throw JsonError("byte " + std::to_string(invalid) + " is no UTF-8");
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte order mark, as json.loads does with bytes
  return Parser(text).document();
}

}  // namespace spc
