#include "value.h"

#include <algorithm>

#include "../unicode.h"

namespace spc::jinja {
namespace {

constexpr int kDeepest = 200;  // nesting of lists and mappings
constexpr size_t kFew = 8;     // names that are looked for one after the other

void check_depth(int depth) {
  if (depth > kDeepest) throw TemplateError{"it has values that are nested deeper than " + std::to_string(kDeepest)};
}

}  // namespace

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [own, value] : named)
    if (own == name) return &value;
  return nullptr;
}

const Value* Dict::find(const std::string& name) const {
  if (items_.size() > kFew) {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &items_[found->second].second;
  }
  for (const auto& [own, value] : items_)
    if (own == name) return &value;
  return nullptr;
}

void Dict::set(const std::string& name, Value value) {
  const auto [place, is_new] = places_.emplace(name, items_.size());
  if (is_new)
    items_.emplace_back(name, std::move(value));
  else
    items_[place->second].second = std::move(value);
}

Value Value::list(Values values, bool is_tuple) {
  Value made;
  made.kind_ = is_tuple ? Kind::kTuple : Kind::kList;
  made.values_ = std::make_shared<const Values>(std::move(values));
  return made;
}

Value Value::name_space(Dict values) {
  Value made(std::move(values));
  made.kind_ = Kind::kNamespace;
  return made;
}

Value Value::undefined(std::string why) {
  Value made(std::move(why));
  made.kind_ = Kind::kUndefined;
  return made;
}

Value Value::of(const Json& json) {
  switch (json.type()) {
    case Json::Type::kNull: return {};
    case Json::Type::kBool: return json.boolean();
    case Json::Type::kInteger: return json.integer();
    case Json::Type::kBig: throw TemplateError{"it has integers of more than 64 bits"};
    case Json::Type::kNumber: return json.number();
    case Json::Type::kText: return json.text();
    case Json::Type::kList: {
      Values found;
      for (const Json& each : json.list()) found.push_back(of(each));
      return list(std::move(found));
    }
    case Json::Type::kObject: {
      Dict found;
      for (const auto& [name, each] : json.object()) found.set(name, of(each));
      return found;
    }
  }
  return {};
}

const std::string& Value::text() const {
  static const std::string none;
  return text_ ? *text_ : none;
}

const Values& Value::values() const {
  static const Values none;
  return values_ ? *values_ : none;
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInteger: return integer_ != 0;
    case Kind::kReal: return real_ != 0;
    case Kind::kText: return !text_->empty();
    case Kind::kList:
    case Kind::kTuple: return !values_->empty();
    case Kind::kDict: return !dict_->items().empty();
    default: return true;
  }
}

bool Value::equals(const Value& other, int depth) const {
  check_depth(depth);
  if (is_number() && other.is_number()) return is_whole() && other.is_whole() ? integer_ == other.integer_ : real() == other.real();
  if (kind_ != other.kind_) return false;
  if (is_text()) return text() == other.text();
  if (is_list()) {
    const Values &one = values(), &two = other.values();
    return one.size() == two.size() && std::equal(one.begin(), one.end(), two.begin(), [depth](const Value& left, const Value& right) { return left.equals(right, depth + 1); });
  }
  if (is_dict()) {
    if (dict().items().size() != other.dict().items().size()) return false;
    return std::all_of(dict().items().begin(), dict().items().end(), [&](const auto& item) {
      const Value* const found = other.dict().find(item.first);
      return found && item.second.equals(*found, depth + 1);
    });
  }
  return is_none() || is_undefined() || (dict_ && dict_ == other.dict_) || (function_ && function_ == other.function_);
}

std::string Value::str() const {
  if (is_undefined()) return "";
  return is_text() ? text() : repr();
}

std::string Value::repr(int depth) const {
  check_depth(depth);
  switch (kind_) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "None";
    case Kind::kBool: return integer_ ? "True" : "False";
    case Kind::kInteger: return std::to_string(integer_);
    case Kind::kReal: return Json(real_).repr();
    case Kind::kText: return python_repr(text());
    case Kind::kList:
    case Kind::kTuple: {
      std::string found;
      for (const Value& each : values()) found += (found.empty() ? "" : ", ") + each.repr(depth + 1);
      if (kind_ == Kind::kList) return "[" + found + "]";
      return "(" + found + (values().size() == 1 ? ",)" : ")");
    }
    case Kind::kDict:
    case Kind::kNamespace: {
      std::string found;
      for (const auto& [name, each] : dict_->items()) found += (found.empty() ? "" : ", ") + python_repr(name) + ": " + each.repr(depth + 1);
      return is_dict() ? "{" + found + "}" : "<Namespace {" + found + "}>";
    }
    case Kind::kFunction: break;
  }
  throw TemplateError{"it writes a function, which has no text"};
}

Json Value::json(int depth) const {
  check_depth(depth);
  switch (kind_) {
    case Kind::kNone: return {};
    case Kind::kBool: return integer_ != 0;
    case Kind::kInteger: return integer_;
    case Kind::kReal: return real_;
    case Kind::kText: return text();
    case Kind::kList:
    case Kind::kTuple: {
      Json::List found;
      for (const Value& each : values()) found.push_back(each.json(depth + 1));
      return found;
    }
    case Kind::kDict: {
      Json::Object found;
      for (const auto& [name, each] : dict().items()) found.emplace_back(name, each.json(depth + 1));
      return found;
    }
    default: throw TemplateError{std::string("Object of type ") + type() + " is not JSON serializable"};
  }
}

const char* Value::type() const {
  static constexpr const char* kTypes[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple", "dict", "Namespace", "function"};
  return kTypes[static_cast<size_t>(kind_)];
}

Values iterated(const Value& value) {
  Values found;
  switch (value.kind()) {
    case Value::Kind::kUndefined: break;
    case Value::Kind::kList:
    case Value::Kind::kTuple: return value.values();
    case Value::Kind::kText:
      for (const std::string_view each : characters_of(value.text())) found.emplace_back(std::string(each));
      break;
    case Value::Kind::kDict:
      for (const auto& item : value.dict().items()) found.emplace_back(item.first);
      break;
    default: throw TemplateError{std::string("'") + value.type() + "' object is not iterable"};
  }
  return found;
}

const Value& defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError{value.why()};
  return value;
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined: return 0;
    case Value::Kind::kText:
      return std::count_if(value.text().begin(), value.text().end(), [](char c) { return !unicode::continues(c); });
    case Value::Kind::kList:
    case Value::Kind::kTuple: return static_cast<int64_t>(value.values().size());
    case Value::Kind::kDict: return static_cast<int64_t>(value.dict().items().size());
    default: throw TemplateError{std::string("object of type '") + value.type() + "' has no len()"};
  }
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

}  // namespace spc::jinja
