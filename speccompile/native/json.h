// JSON values: read as Python's json.loads reads them, written as json.dumps writes them.
//
// By hand, because both runtimes refuse the same files in the same words and write the same bytes: nlohmann/json makes floats of
// large integers and takes twice the time. Figures: docs/explanation/decisions/0009-formats-by-hand.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spc {

// The text is no JSON. The words are those of Python's JSONDecodeError.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Json {
 public:
  // kBig: an integer beyond int64; `text()` has its digits.
  enum class Type { kNull, kBool, kInteger, kBig, kNumber, kText, kList, kObject };
  using List = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the file; every name once, the last value of several

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : type_(Type::kBool), integer_(value) {}
  Json(int value) : type_(Type::kInteger), integer_(value) {}
  Json(int64_t value) : type_(Type::kInteger), integer_(value) {}
  Json(uint64_t value);
  Json(double value) : type_(Type::kNumber), number_(value) {}
  Json(std::string value) : type_(Type::kText), text_(std::move(value)) {}
  Json(std::string_view value) : type_(Type::kText), text_(value) {}
  Json(const char* value) : type_(Type::kText), text_(value) {}
  Json(List value) : type_(Type::kList), list_(std::move(value)) {}
  Json(Object value) : type_(Type::kObject), object_(std::move(value)) {}
  // An integer beyond int64, from its digits.
  static Json big(std::string digits);

  // Throws JsonError; also for text that is not UTF-8, is nested deeper than 500, or has an integer of more than 4300 digits.
  // Lone surrogates (\ud800) become the three bytes that UTF-8 would have for them, which `is_utf8` refuses.
  static Json parse(std::string_view text);

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_integer() const { return type_ == Type::kInteger; }
  bool is_number() const { return type_ == Type::kNumber || is_integer(); }  // an integer is a number as well
  bool is_text() const { return type_ == Type::kText; }
  bool is_list() const { return type_ == Type::kList; }
  bool is_object() const { return type_ == Type::kObject; }

  // The caller must check the type: for another type these return zero, "" or an empty value.
  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }
  double number() const { return is_integer() ? static_cast<double>(integer_) : number_; }
  const std::string& text() const { return text_; }
  const List& list() const { return list_; }
  const Object& object() const { return object_; }
  List& list() { return list_; }
  Object& object() { return object_; }

  // Return the value of a name, or null if there is none or this is no object.
  const Json* find(std::string_view name) const;
  // The same, or a JSON null.
  const Json& operator[](std::string_view name) const;
  // Set the value of a name, in place or at the end.
  void set(std::string_view name, Json value);

  // Equality as in Python, except that 1, 1.0 and True differ.
  bool operator==(const Json& other) const;
  bool operator!=(const Json& other) const { return !(*this == other); }

  // json.dumps(ensure_ascii=False): on one line with ", " and ": ", or with `indent` spaces a level; kCompact: without any blank.
  static constexpr int kCompact = -2;
  std::string dump(int indent = -1, bool sort_keys = false) const;
  // Return the format of a bundle's files: sorted names, one space per level, a newline at the end.
  std::string canonical() const { return dump(1, true) + "\n"; }
  // Python's name of the type (int, str, dict, ..) and its repr, for messages.
  const char* python_type() const;
  std::string repr() const;

 private:
  Type type_ = Type::kNull;
  int64_t integer_ = 0;
  double number_ = 0;
  std::string text_;
  List list_;
  Object object_;
};

// A list of the values from the one at `from` on, at most `count` of them; empty where there are none.
template <class Value>
Json list_of(const std::vector<Value>& values, size_t from = 0, size_t count = static_cast<size_t>(-1)) {
  const size_t first = std::min(from, values.size()), last = first + std::min(count, values.size() - first);
  const auto at = [&](size_t place) { return values.begin() + static_cast<std::ptrdiff_t>(place); };
  return Json::List(at(first), at(last));
}

// repr() of a Python str (quotes chosen as Python does), and of a float.
std::string python_repr(std::string_view text);
std::string python_repr(double value);
// Return the first `count` characters of a UTF-8 text.
std::string first_characters(std::string_view text, size_t count);
// Return whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// Return the position of the first byte that is not valid UTF-8, npos for none.
size_t first_invalid_utf8(std::string_view text);

}  // namespace spc
