// Writing of JSON values: as json.dumps does, and as Python's repr for messages.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "json.h"

namespace spc {
namespace {

// The shortest digits that give the number again, and the power of ten of the first.
struct Digits {
  std::string digits;
  int exponent;
};

Digits shortest(double value) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific);
  const std::string_view whole(text, error == std::errc() ? static_cast<size_t>(end - text) : 0);
  const size_t e = whole.find('e');
  Digits found{"", 0};
  for (const char c : whole.substr(0, e))
    if (c != '.') found.digits += c;
  const size_t sign = whole[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(whole.data() + sign, whole.data() + whole.size(), found.exponent);
  return found;
}

void write_text(std::string& to, std::string_view text) {
  static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  to += '"';
  for (const char c : text) {
    const size_t place = kEscaped.find(c);
    if (place != std::string_view::npos) {
      to += '\\';
      to += kLetters[place];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      to += code;
    } else {
      to += c;
    }
  }
  to += '"';
}

// json.dumps; `indent` below zero: on one line.
class Writer {
 public:
  Writer(int indent, bool sort) : indent_(indent), sort_(sort) {}

  void write(const Json& value, int level) {
    switch (value.type()) {
      case Json::Type::kNull: to_ += "null"; break;
      case Json::Type::kBool: to_ += value.boolean() ? "true" : "false"; break;
      case Json::Type::kInteger: to_ += std::to_string(value.integer()); break;
      case Json::Type::kBig: to_ += value.text(); break;
      case Json::Type::kNumber: number(value.number()); break;
      case Json::Type::kText: write_text(to_, value.text()); break;
      case Json::Type::kList: list(value.list(), level); break;
      case Json::Type::kObject: object(value.object(), level); break;
    }
  }

  std::string to_;

 private:
  void number(double value) {
    if (std::isnan(value))
      to_ += "NaN";
    else if (std::isinf(value))
      to_ += value < 0 ? "-Infinity" : "Infinity";
    else
      to_ += python_repr(value);
  }

  void line(int level) {
    if (indent_ < 0) return;
    to_ += '\n';
    to_.append(static_cast<size_t>(indent_) * static_cast<size_t>(level), ' ');
  }

  void comma() { to_ += indent_ == -1 ? ", " : ","; }

  void list(const Json::List& values, int level) {
    to_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) comma();
      line(level + 1);
      write(values[i], level + 1);
    }
    if (!values.empty()) line(level);
    to_ += ']';
  }

  void object(const Json::Object& members, int level) {
    std::vector<const Json::Member*> order;
    for (const Json::Member& each : members) order.push_back(&each);
    // by code point, which is the order of UTF-8's bytes
    if (sort_) std::sort(order.begin(), order.end(), [](const auto* one, const auto* other) { return one->first < other->first; });
    to_ += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i) comma();
      line(level + 1);
      write_text(to_, order[i]->first);
      to_ += indent_ == Json::kCompact ? ":" : ": ";
      write(order[i]->second, level + 1);
    }
    if (!order.empty()) line(level);
    to_ += '}';
  }

  const int indent_;
  const bool sort_;
};

// The code points that Python's repr shows by their number, of those that a message may well hold: controls, what has no
// width, and halves of surrogate pairs, which would make the message no UTF-8.
bool is_shown_by_number(uint32_t code) {
  return (code >= 0x80 && code <= 0xA0) || code == 0xAD || (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || (code >= 0xD800 && code <= 0xDFFF) || code == 0xFEFF;
}

}  // namespace

Json::Json(uint64_t value) : type_(Type::kInteger), integer_(static_cast<int64_t>(value)) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) *this = big(std::to_string(value));
}

Json Json::big(std::string digits) {
  Json made;
  made.type_ = Type::kBig;
  made.text_ = std::move(digits);
  return made;
}

const Json* Json::find(std::string_view name) const {
  for (const Member& each : object_)
    if (each.first == name) return &each.second;
  return nullptr;
}

const Json& Json::operator[](std::string_view name) const {
  static const Json* const null = new Json;
  const Json* found = find(name);
  return found ? *found : *null;
}

void Json::set(std::string_view name, Json value) {
  for (Member& each : object_) {
    if (each.first == name) {
      each.second = std::move(value);
      return;
    }
  }
  type_ = Type::kObject;
  object_.emplace_back(name, std::move(value));
}

bool Json::operator==(const Json& other) const {
  if (type_ != other.type_) return false;
  if (type_ == Type::kNumber) return number_ == other.number_;
  if (type_ != Type::kObject) return integer_ == other.integer_ && text_ == other.text_ && list_ == other.list_;
  if (object_.size() != other.object_.size()) return false;
  for (const Member& each : object_) {
    const Json* found = other.find(each.first);
    if (!found || *found != each.second) return false;
  }
  return true;
}

std::string Json::dump(int indent, bool sort_keys) const {
  Writer writer(indent, sort_keys);
  writer.write(*this, 0);
  return std::move(writer.to_);
}

const char* Json::python_type() const {
  static constexpr const char* kNames[] = {"NoneType", "bool", "int", "int", "float", "str", "list", "dict"};
  return kNames[static_cast<int>(type_)];
}

std::string Json::repr() const {
  std::string found;
  switch (type_) {
    case Type::kNull: return "None";
    case Type::kBool: return integer_ ? "True" : "False";
    case Type::kInteger: return std::to_string(integer_);
    case Type::kBig: return text_;
    case Type::kNumber: return std::isnan(number_) ? "nan" : std::isinf(number_) ? (number_ < 0 ? "-inf" : "inf") : python_repr(number_);
    case Type::kText: return python_repr(text_);
    case Type::kList:
      for (const Json& each : list_) found += (found.empty() ? "" : ", ") + each.repr();
      return "[" + found + "]";
    case Type::kObject:
      for (const Member& each : object_) found += (found.empty() ? "" : ", ") + python_repr(each.first) + ": " + each.second.repr();
      return "{" + found + "}";
  }
  return found;
}

std::string python_repr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string found(1, quote);
  const auto byte = [&](size_t at) -> uint32_t { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    char code[8];
    const uint32_t two = (byte(i) & 0x1F) << 6 | (byte(i + 1) & 0x3F), three = (byte(i) & 0xF) << 12 | (byte(i + 1) & 0x3F) << 6 | (byte(i + 2) & 0x3F);
    if (c == quote || c == '\\') {
      found += '\\';
      found += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      found += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (byte(i) < 0x20 || c == 0x7F) {
      std::snprintf(code, sizeof code, "\\x%02x", byte(i));
      found += code;
    } else if (byte(i) >> 5 == 6 && is_shown_by_number(two)) {
      std::snprintf(code, sizeof code, "\\x%02x", two & 0xFF);
      found += code;
      i += 1;
    } else if (byte(i) >> 4 == 14 && is_shown_by_number(three)) {
      std::snprintf(code, sizeof code, "\\u%04x", three & 0xFFFF);
      found += code;
      i += 2;
    } else {
      found += c;
    }
  }
  return found + quote;
}

std::string python_repr(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  if (std::isnan(value)) return "nan";
  const std::string sign = value < 0 ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  auto [digits, exponent] = shortest(std::fabs(value));
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    char tail[24];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    return sign + digits + tail;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  digits.insert(static_cast<size_t>(exponent) + 1, ".");
  return sign + digits;
}

std::string first_characters(std::string_view text, size_t count) {
  size_t at = 0, characters = 0;
  for (; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && characters++ == count) break;
  return std::string(text.substr(0, at));
}

size_t first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  const auto byte = [&](size_t place) -> unsigned { return place < text.size() ? static_cast<unsigned char>(text[place]) : 0u; };
  while (at < text.size()) {
    const unsigned first = byte(at);
    if (first < 0x80) {
      ++at;
      continue;
    }
    const size_t more = first >= 0xC2 && first < 0xE0 ? 1 : first >= 0xE0 && first < 0xF0 ? 2 : first >= 0xF0 && first < 0xF5 ? 3 : 0;
    if (!more) return at;
    const unsigned lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(at + 1) < lowest || byte(at + 1) > highest) return at;
    for (size_t i = 2; i <= more; ++i)
      if ((byte(at + i) & 0xC0) != 0x80) return at;
    at += more + 1;
  }
  return std::string_view::npos;
}

bool is_utf8(std::string_view text) { return first_invalid_utf8(text) == std::string_view::npos; }

}  // namespace spc
