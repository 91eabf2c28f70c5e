#include "value.h"

#include <algorithm>

namespace spc::jinja {
namespace {

constexpr size_t kFew = 8;  // names that are looked for one after the other

template <class Items, class Write>
void write_between_commas(const Items& items, const Write& write, std::string& to) {
  for (const auto& each : items) {
    if (&each != &items.front()) to += ", ";
    write(each);
  }
}

}  // namespace

class Value::Walk {
 public:
  static constexpr int kDeepest = 200;

  static void check_depth(int depth) {
    if (depth > kDeepest) throw TemplateError{"it has values that are nested deeper than " + std::to_string(kDeepest)};
  }
  // Meet a value inside of another one, and leave it.
  class Step {
   public:
    explicit Step(Walk& walk) : walk_(walk) {
      check_depth(++walk.depth_);
      if (++walk.met_ > kMost) throw TemplateError{"it has a value with more than " + std::to_string(kMost) + " others inside"};
    }
    ~Step() { --walk_.depth_; }

   private:
    Walk& walk_;
  };
  // Throw TemplateError for a text that no prompt needs.
  static void check(const std::string& written) {
    if (written.size() > kLargest) throw TemplateError{"it makes a text of more than " + std::to_string(kLargest) + " bytes"};
  }

 private:
  static constexpr int64_t kMost = 1 << 20;
  static constexpr size_t kLargest = size_t{1} << 24;

  int depth_ = 0;
  int64_t met_ = 0;
};

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

Value::Value(Dict value) : kind_(Kind::kDict) {
  for (const auto& item : value.items()) depth_ = std::max(depth_, item.second.depth_);
  Walk::check_depth(++depth_);
  dict_ = std::make_shared<Dict>(std::move(value));
}

Value Value::list(Values values, bool is_tuple) {
  Value made;
  for (const Value& each : values) made.depth_ = std::max(made.depth_, each.depth_);
  Walk::check_depth(++made.depth_);
  made.kind_ = is_tuple ? Kind::kTuple : Kind::kList;
  made.values_ = std::make_shared<const Values>(std::move(values));
  return made;
}

Value Value::name_space(Dict values) {
  Value made(std::move(values));
  made.kind_ = Kind::kNamespace;
  return made;
}

Value Value::big(std::string digits) {
  Value made(std::move(digits));
  made.kind_ = Kind::kBig;
  return made;
}

const Value& Value::calculable() const {
  if (is(Kind::kBig)) throw TemplateError{"it calculates with an integer of more than 64 bits, which is not supported here"};
  return *this;
}

Value Value::markup(std::string text) {
  Value made(std::move(text));
  made.is_markup_ = true;
  return made;
}

Value Value::generator(Values values) {
  Value made = list(std::move(values));
  made.kind_ = Kind::kGenerator;
  made.passed_ = std::make_shared<size_t>(0);
  return made;
}

Value Value::range(Values values) {
  Value made = list(std::move(values));
  made.kind_ = Kind::kRange;
  return made;
}

Value Value::view(Values values, std::string name) {
  Value made = list(std::move(values));
  made.kind_ = Kind::kView;
  made.text_ = std::make_shared<const std::string>(std::move(name));
  return made;
}

Value Value::group(Value key, Values members) {
  Dict parts;
  parts.set("grouper", std::move(key));
  parts.set("list", list(std::move(members)));
  Value made = list({*parts.find("grouper"), *parts.find("list")}, true);
  made.dict_ = std::make_shared<Dict>(std::move(parts));
  return made;
}

Values Value::taken(size_t most) const {
  const size_t begin = *passed_, end = begin + std::min(most, values().size() - begin);
  *passed_ = end;
  return Values(values().begin() + static_cast<std::ptrdiff_t>(begin), values().begin() + static_cast<std::ptrdiff_t>(end));
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
    case Json::Type::kBig: return big(json.text());
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

Value Value::call(const Arguments& arguments) const {
  if (!function_) throw TemplateError{std::string("'") + type() + "' object is not callable"};
  return (*function_)(arguments);
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
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView: return !values_->empty();
    case Kind::kDict: return !dict_->items().empty();
    default: return true;
  }
}

bool Value::equals(const Value& other) const {
  Walk walk;
  return equals(other, walk);
}

bool Value::equals(const Value& other, Walk& walk) const {
  const Walk::Step step(walk);
  if (is_number() && other.is_number()) return is_whole() && other.is_whole() ? integer_ == other.integer_ : real() == other.real();
  if (is(Kind::kReal)) other.calculable();
  if (other.is(Kind::kReal)) calculable();
  if (kind_ != other.kind_) return false;
  if (is_text() || is(Kind::kBig)) return text() == other.text();
  if (is_list() || is(Kind::kRange)) {
    const Values &one = values(), &two = other.values();
    return one.size() == two.size() && std::equal(one.begin(), one.end(), two.begin(), [&walk](const Value& left, const Value& right) { return left.equals(right, walk); });
  }
  if (is_dict()) {
    if (dict().items().size() != other.dict().items().size()) return false;
    return std::all_of(dict().items().begin(), dict().items().end(), [&](const auto& item) {
      const Value* const found = other.dict().find(item.first);
      return found && item.second.equals(*found, walk);
    });
  }
  return is_none() || is_undefined() || (dict_ && dict_ == other.dict_) || (is(Kind::kGenerator) && passed_ == other.passed_) || (function_ && function_ == other.function_);
}

std::string Value::str() const {
  if (is_undefined()) return "";
  return is_text() ? text() : repr();
}

std::string Value::repr() const {
  Walk walk;
  std::string found;
  write(found, walk);
  return found;
}

void Value::write(std::string& to, Walk& walk) const {
  const Walk::Step step(walk);
  const auto write_value = [&](const Value& each) { each.write(to, walk); };
  const auto write_pair = [&](const std::pair<std::string, Value>& each) {
    to += key_of_name(each.first).repr() + ": ";
    each.second.write(to, walk);
  };
  switch (kind_) {
    case Kind::kUndefined: to += "Undefined"; break;
    case Kind::kNone: to += "None"; break;
    case Kind::kBool: to += integer_ ? "True" : "False"; break;
    case Kind::kInteger: to += std::to_string(integer_); break;
    case Kind::kBig: to += text(); break;
    case Kind::kReal: to += Json(real_).repr(); break;
    case Kind::kText: to += is_markup_ ? "Markup(" + python_repr(text()) + ")" : python_repr(text()); break;
    case Kind::kList:
    case Kind::kTuple:
      to += is(Kind::kList) ? "[" : "(";
      write_between_commas(values(), write_value, to);
      to += is(Kind::kList) ? "]" : values().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict:
    case Kind::kNamespace:
      to += is_dict() ? "{" : "<Namespace {";
      write_between_commas(dict_->items(), write_pair, to);
      to += is_dict() ? "}" : "}>";
      break;
    case Kind::kView:
      to += text() + "([";
      write_between_commas(values(), write_value, to);
      to += "])";
      break;
    case Kind::kFunction:
    case Kind::kGenerator:
    case Kind::kRange: throw TemplateError{std::string("it writes a ") + type() + ", which has no text here"};
  }
  Walk::check(to);
}

Json Value::json() const {
  Walk walk;
  return json(walk);
}

Json Value::json(Walk& walk) const {
  const Walk::Step step(walk);
  switch (kind_) {
    case Kind::kNone: return {};
    case Kind::kBool: return integer_ != 0;
    case Kind::kInteger: return integer_;
    case Kind::kBig: return Json::big(text());
    case Kind::kReal: return real_;
    case Kind::kText: return text();
    case Kind::kList:
    case Kind::kTuple: {
      Json::List found;
      for (const Value& each : values()) found.push_back(each.json(walk));
      return found;
    }
    case Kind::kDict: {
      Json::Object found;
      for (const auto& [name, each] : dict().items()) {
        if (!key_of_name(name).is_text()) throw TemplateError{"it writes a mapping with keys that are no texts as JSON, which is not supported here"};
        found.emplace_back(name, each.json(walk));
      }
      return found;
    }
    default: throw TemplateError{std::string("Object of type ") + type() + " is not JSON serializable"};
  }
}

const char* Value::type() const {
  static constexpr const char* kTypes[] = {"Undefined", "NoneType", "bool", "int", "int", "float", "str", "list", "tuple", "dict", "Namespace", "function", "generator", "range", "dict view"};
  return kTypes[static_cast<size_t>(kind_)];
}

Values iterated(const Value& value) {
  Values found;
  switch (value.kind()) {
    case Value::Kind::kUndefined: break;
    case Value::Kind::kList:
    case Value::Kind::kTuple:
    case Value::Kind::kRange:
    case Value::Kind::kView: return value.values();
    case Value::Kind::kGenerator: return value.taken(value.values().size());
    case Value::Kind::kText:
      for (const std::string_view each : characters_of(value.text())) found.emplace_back(std::string(each));
      break;
    case Value::Kind::kDict:
      for (const auto& item : value.dict().items()) found.push_back(key_of_name(item.first));
      break;
    default: throw TemplateError{std::string("'") + value.type() + "' object is not iterable"};
  }
  return found;
}

}  // namespace spc::jinja
