// Values of chat templates, as Python has them: texts are UTF-8, all but namespaces never change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../json.h"

namespace spc::jinja {

// The template cannot be read, or does not take what it was given. line: of the template, 0 where it is not known.
struct TemplateError {
  std::string message;
  int64_t line = 0;
};

class Value;
using Values = std::vector<Value>;

// Arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // Return an argument by its place or name, null without one.
  const Value* find(size_t place, std::string_view name) const;
};

// A mapping, in the order in which its keys were set. Keys are texts; other ones have names that no text is (name_of_key).
class Dict {
 public:
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::unordered_map<std::string, size_t> places_;
};

using Function = std::function<Value(const Arguments&)>;

class Value {
 public:
  // kBig: an integer beyond int64, which is written and not calculated with; `text()` has its digits.
  enum class Kind { kUndefined, kNone, kBool, kInteger, kBig, kReal, kText, kList, kTuple, kDict, kNamespace, kFunction, kGenerator, kRange, kView };

  Value() = default;  // None
  Value(bool value) : kind_(Kind::kBool), integer_(value) {}
  Value(int64_t value) : kind_(Kind::kInteger), integer_(value) {}
  Value(double value) : kind_(Kind::kReal), real_(value) {}
  Value(std::string value) : kind_(Kind::kText), text_(std::make_shared<const std::string>(std::move(value))) {}
  Value(const char* value) : Value(std::string(value)) {}
  // Lists and mappings that are nested too deep cannot be made: their end would use up the stack.
  Value(Dict value);
  Value(Function value) : kind_(Kind::kFunction), function_(std::make_shared<const Function>(std::move(value))) {}
  static Value list(Values values, bool is_tuple = false);
  static Value name_space(Dict values);
  static Value big(std::string digits);
  // A text that the filters `safe` and `escape` have given: what is added to it is escaped, as by markupsafe.
  static Value markup(std::string text);
  // Result of filters such as map: it can be iterated once, is true though empty, and has no length.
  static Value generator(Values values);
  static Value range(Values values);
  // The keys, values or items of a mapping. name: Python's, such as dict_keys.
  static Value view(Values values, std::string name);
  // why: the error's text where it is used.
  static Value undefined(std::string why);
  static Value of(const Json& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_markup() const { return is_markup_; }
  bool is_list() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  // Integers, and booleans, which count as such.
  bool is_whole() const { return kind_ == Kind::kInteger || kind_ == Kind::kBool; }
  bool is_number() const { return is_whole() || kind_ == Kind::kReal; }

  int64_t integer() const { return integer_; }
  double real() const { return kind_ == Kind::kReal ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;
  const Values& values() const;
  const Dict& dict() const { return *dict_; }
  // Result of groupby for one key: a pair whose parts have names.
  static Value group(Value key, Values members);
  // Return a part of such a pair by its name, null for every other value and name.
  const Value* named(const std::string& name) const { return kind_ == Kind::kTuple && dict_ ? dict_->find(name) : nullptr; }
  // Take the remaining values of a generator, at most `most`.
  Values taken(size_t most) const;
  Dict& changed() const { return *dict_; }  // of a namespace
  std::weak_ptr<Dict> watched() const { return dict_; }
  // Return the value. Throws TemplateError for an integer beyond int64.
  const Value& calculable() const;
  // Throws TemplateError if it is no function.
  Value call(const Arguments& arguments) const;
  const std::string& why() const { return *text_; }  // of an undefined value

  bool truth() const;
  // The functions below throw TemplateError for values that are nested too deep, or hold too many others: a list that holds a
  // list twice, which holds one twice, and so on, is small until something walks through it.
  bool equals(const Value& other) const;
  // Return str() and repr() of Python.
  std::string str() const;
  std::string repr() const;
  Json json() const;
  // Python's name of the type.
  const char* type() const;

 private:
  // Depth of a walk through a value, and the number of values that it has met.
  class Walk;
  bool equals(const Value& other, Walk& walk) const;
  void write(std::string& to, Walk& walk) const;
  Json json(Walk& walk) const;

  Kind kind_ = Kind::kNone;
  bool is_markup_ = false;
  int depth_ = 0;  // of lists and mappings inside each other
  int64_t integer_ = 0;
  double real_ = 0;
  std::shared_ptr<const std::string> text_;
  std::shared_ptr<const Values> values_;
  std::shared_ptr<Dict> dict_;
  std::shared_ptr<const Function> function_;
  std::shared_ptr<size_t> passed_;  // of a generator: values that were taken
};

// Return the values that a loop goes through: of a text its characters, of a mapping its keys, of an undefined value none. Throws
// TemplateError for another value.
Values iterated(const Value& value);
// Return the name of a key in a Dict: none for one that is neither text, whole number nor None. What Python takes for equal has one
// name.
std::optional<std::string> name_of_key(const Value& key);
// Return the key of such a name.
Value key_of_name(const std::string& name);
// Return the value of a key, null where there is none.
const Value* find_key(const Dict& dict, const Value& key);
// Throw TemplateError for a value that no mapping of Python takes as a key.
void require_hashable(const Value& value);
// Throw TemplateError for an undefined value that is used.
const Value& defined(const Value& value);
// Return the number of elements or characters. Throws TemplateError for a value without.
int64_t length_of(const Value& value);
// Return the characters of a text.
std::vector<std::string_view> characters_of(const std::string& text);

}  // namespace spc::jinja
