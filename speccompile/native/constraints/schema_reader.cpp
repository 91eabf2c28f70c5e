// Reading a JSON schema's keywords.
#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "formats.h"
#include "schema.h"

namespace spc::constraints {
namespace {

using Kind = Schema::Kind;

constexpr size_t kMostSchemas = 50'000;
constexpr int kDeepest = 100;
constexpr std::array<const char*, 6> kTypes = {"null", "boolean", "number", "string", "array", "object"};

const std::set<std::string_view>& applicators() {
  static const std::set<std::string_view> found = {"const", "enum", "allOf", "anyOf", "oneOf", "$ref"};
  return found;
}

// Keywords of some draft that are not known here. Those that say nothing about values, and those of no draft, are ignored, as JSON
// Schema says.
const std::set<std::string_view>& unknown() {
  static const std::set<std::string_view> found = {"dependencies", "not", "uniqueItems", "contains", "propertyNames", "else", "if", "then", "$recursiveAnchor",
                                                   "$recursiveRef", "dependentRequired", "dependentSchemas", "maxContains", "minContains", "unevaluatedItems",
                                                   "unevaluatedProperties", "$dynamicAnchor", "$dynamicRef"};
  return found;
}

const std::set<std::string_view>& known() {
  static const std::set<std::string_view> found = {"items", "additionalItems", "prefixItems", "minItems", "maxItems", "properties", "additionalProperties",
                                                   "patternProperties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "format",
                                                   "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "type"};
  return found;
}

[[noreturn]] void refuse_type(const char* keyword, const char* expected, const Json& value) {
  throw Refused{std::string(keyword) + ": received " + first_characters(value.dump(), 100) + ", expected " + expected};
}

const Json* find(const std::vector<std::pair<std::string, const Json*>>& keywords, std::string_view name) {
  for (const auto& [keyword, value] : keywords)
    if (keyword == name) return value;
  return nullptr;
}

std::optional<size_t> size_of(const std::vector<std::pair<std::string, const Json*>>& keywords, const char* name) {
  const Json* const value = find(keywords, name);
  if (!value) return std::nullopt;
  if (!value->is_integer() || value->integer() < 0) refuse_type(name, "a whole number that is not negative", *value);
  if (value->integer() > 1'000'000) throw TooComplex();
  return static_cast<size_t>(value->integer());
}

const Json::List& list_of(const Json& value, const char* name) {
  if (!value.is_list()) refuse_type(name, "a list", value);
  return value.list();
}

}  // namespace

Schema Schema::none(const std::string& why) {
  Schema found{Kind::kNone};
  found.name = why;
  return found;
}

bool Schema::requires_property(const std::string& property) const { return std::find(required.begin(), required.end(), property) != required.end(); }

Schema checked(Schema object) {
  if (object.most && object.least > *object.most) return Schema::none("minProperties > maxProperties");
  if (object.most && object.required.size() > *object.most) return Schema::none("required > maxProperties");
  return object;
}

void SchemaReader::count() {
  if (++compiled_ > kMostSchemas) throw TooComplex();
}

Schema SchemaReader::resource(const Json& contents) {
  if (contents.is_bool()) return contents.boolean() ? Schema() : Schema::none("schema is false");
  if (!contents.is_object()) throw Refused{"schema must be an object or boolean"};
  if (depth_ >= kDeepest) throw Refused{"it is nested too deeply"};
  ++depth_;
  Schema found = normalized(contents_of(contents.object()));
  --depth_;
  return found;
}

Schema SchemaReader::contents_of(const Json::Object& contents) {
  count();
  for (const auto& each : contents)
    if (unknown().count(each.first)) throw Refused{"the keyword " + each.first + " is not supported"};
  Json dummy_properties{Json::Object{}}, dummy_items{Json::List{}};
  const Json *properties = nullptr, *prefix = nullptr, *type = nullptr;
  for (const auto& [name, value] : contents) {
    if (name == "properties") properties = &value;
    if (name == "prefixItems") prefix = &value;
    if (name == "type") type = &value;
  }
  if (properties) {
    if (!properties->is_object()) refuse_type("properties", "an object", *properties);
    for (const auto& each : properties->object()) dummy_properties.set(each.first, true);
  }
  if (prefix)
    for (size_t at = 0; at < list_of(*prefix, "prefixItems").size(); ++at) dummy_items.list().emplace_back(true);
  Schema result;
  Keywords current;
  const auto flush = [&] {
    if (current.empty()) return;
    if (type && !constraints::find(current, "type")) current.emplace_back("type", type);  // the smallest union
    result = intersection(std::move(result), of_types(current), 0);
    current.clear();
  };
  for (const auto& [name, value] : contents) {
    if (applicators().count(name)) {
      flush();
      result = apply(std::move(result), name, value);
    } else if (known().count(name)) {
      current.erase(std::remove_if(current.begin(), current.end(), [&, &own = name](const auto& each) { return each.first == own; }), current.end());
      current.emplace_back(name, &value);
      // what these say depends on others, which may come later
      if (name == "additionalProperties" && properties && !constraints::find(current, "properties")) current.emplace_back("properties", &dummy_properties);
      if (name == "items" && prefix && !constraints::find(current, "prefixItems")) current.emplace_back("prefixItems", &dummy_items);
    }
  }
  flush();
  return result;
}

Schema SchemaReader::apply(Schema result, const std::string& keyword, const Json& value) {
  if (keyword == "const") return intersection(std::move(result), constant(value), 0);
  if (keyword == "$ref") {
    if (!value.is_text()) refuse_type("$ref", "a text", value);
    if (result.kind != Kind::kAny) return with_reference(value.text(), std::move(result), false, 0);
    define(value.text());
    Schema found{Kind::kRef};
    found.name = value.text();
    return found;
  }
  Schemas parts;
  for (const Json& each : list_of(value, keyword.c_str())) parts.push_back(keyword == "enum" ? constant(each) : resource(each));
  if (keyword == "allOf") {
    for (Schema& part : parts) result = intersection(std::move(result), std::move(part), 0);
    return result;
  }
  Schema options{keyword == "oneOf" ? Kind::kOneOf : Kind::kAnyOf};
  options.parts = std::move(parts);
  return intersection(std::move(result), std::move(options), 0);
}

Schema SchemaReader::of_types(const Keywords& keywords) {
  const Json* const type = constraints::find(keywords, "type");
  if (type && type->is_text()) return of_type(type->text(), keywords);
  if (type && !type->is_list()) refuse_type("type", "the name of a type, or several", *type);
  Schema options{Kind::kAnyOf};
  if (!type)
    for (const char* const each : kTypes) options.parts.push_back(of_type(each, keywords));
  else
    for (const Json& each : type->list()) {
      if (!each.is_text()) refuse_type("type", "names of types", each);
      options.parts.push_back(of_type(each.text(), keywords));
    }
  return options.parts.size() == 1 ? options.parts[0] : options;
}

Schema SchemaReader::of_type(const std::string& type, const Keywords& keywords) {
  count();
  if (type == "null") return {Kind::kNull};
  if (type == "boolean") return {Kind::kBoolean};
  if (type == "number" || type == "integer") return number(keywords, type == "integer");
  if (type == "string") return string(keywords);
  if (type == "array") return array(keywords);
  if (type == "object") return object(keywords);
  throw Refused{"type: received " + first_characters(type, 100) + ", which is no type"};
}

Schema SchemaReader::number(const Keywords& keywords, bool is_integer) {
  Schema found{Kind::kNumber};
  found.is_integer = is_integer;
  const auto read = [&](const char* name, const std::optional<double>& plain) -> std::optional<double> {
    const Json* const value = constraints::find(keywords, name);
    if (!value || (value->is_bool() && !value->boolean())) return std::nullopt;
    if (value->is_bool()) return plain;  // as draft 4 writes it
    if (!value->is_number()) refuse_type(name, "a number", *value);
    return value->number();
  };
  for (const char* const name : {"minimum", "maximum"})
    if (const Json* const value = constraints::find(keywords, name); value && !value->is_number()) refuse_type(name, "a number", *value);
  found.bounds.least = read("minimum", std::nullopt);
  found.bounds.most = read("maximum", std::nullopt);
  found.bounds.above = read("exclusiveMinimum", found.bounds.least);
  found.bounds.below = read("exclusiveMaximum", found.bounds.most);
  if (const Json* const value = constraints::find(keywords, "multipleOf")) {
    if (!value->is_number()) refuse_type("multipleOf", "a number", *value);
    found.multiple = decimal_of(value->number() < 0 ? -value->number() : value->number());
  }
  return found;
}

Schema SchemaReader::string(const Keywords& keywords) {
  Schema found{Kind::kString};
  found.least = size_of(keywords, "minLength").value_or(0);
  found.most = size_of(keywords, "maxLength");
  std::vector<Expr> patterns;
  if (const Json* const pattern = constraints::find(keywords, "pattern")) {
    if (!pattern->is_text()) refuse_type("pattern", "a text", *pattern);
    patterns.push_back(parse_search(expressions_, pattern->text()));
  }
  if (const Json* const format = constraints::find(keywords, "format")) {
    if (!format->is_text()) refuse_type("format", "a text", *format);
    const char* const regex = format_regex(format->text());
    if (!regex) throw Refused{"format: " + first_characters(format->text(), 100) + " is not known"};
    patterns.push_back(parse_regex(expressions_, regex));
  }
  if (!patterns.empty()) found.pattern = expressions_.both(patterns);
  return found;
}

Schema SchemaReader::array(const Keywords& keywords) {
  Schema found{Kind::kArray};
  found.least = size_of(keywords, "minItems").value_or(0);
  found.most = size_of(keywords, "maxItems");
  const Json *first = constraints::find(keywords, "prefixItems"), *rest = constraints::find(keywords, "items");
  const Json* const additional = constraints::find(keywords, "additionalItems");
  const std::string& draft = root_["$schema"].text();
  const bool is_old = draft.find("draft/2019-09") != std::string::npos || draft.find("draft-0") != std::string::npos;
  if (is_old || additional || (rest && rest->is_list())) {  // as before draft 2020-12
    first = rest && rest->is_list() ? rest : nullptr;
    if (first) rest = additional;
  }
  if (first)
    for (const Json& each : list_of(*first, "prefixItems")) found.parts.push_back(resource(each));
  if (rest) found.rest = std::make_shared<Schema>(resource(*rest));
  return found;
}

Named SchemaReader::named(const Json* value, const char* keyword) {
  Named found;
  if (!value) return found;
  if (!value->is_object()) refuse_type(keyword, "an object", *value);
  for (const auto& [name, each] : value->object()) found.emplace_back(name, resource(each));
  return found;
}

Schema SchemaReader::object(const Keywords& keywords) {
  Schema found{Kind::kObject};
  found.least = size_of(keywords, "minProperties").value_or(0);
  found.most = size_of(keywords, "maxProperties");
  found.properties = named(constraints::find(keywords, "properties"), "properties");
  found.patterns = named(constraints::find(keywords, "patternProperties"), "patternProperties");
  check_disjoint(found.patterns);
  for (auto& [name, property] : found.properties)
    for (const auto& [pattern, schema] : found.patterns)
      if (matches(pattern, name)) {
        property = intersection(std::move(property), schema, 0);
        break;
      }
  if (const Json* const rest = constraints::find(keywords, "additionalProperties")) found.rest = std::make_shared<Schema>(resource(*rest));
  if (const Json* const required = constraints::find(keywords, "required"))
    for (const Json& each : list_of(*required, "required")) {
      if (!each.is_text()) refuse_type("required", "texts", each);
      if (!found.requires_property(each.text())) found.required.push_back(each.text());
    }
  return checked(std::move(found));
}

Schema SchemaReader::constant(const Json& value) {
  if (value.is_null()) return {Kind::kNull};
  Schema found;
  if (value.is_bool()) {
    found.kind = Kind::kBoolean;
    found.value = value.boolean();
  } else if (value.is_number()) {
    found.kind = Kind::kNumber;
    found.bounds.least = found.bounds.most = value.number();
    found.is_integer = value.is_integer();
  } else if (value.is_text()) {
    found.kind = Kind::kString;
    found.literal = value.text();
    found.pattern = expressions_.literal(value.text());
  } else if (value.is_list()) {
    found.kind = Kind::kArray;
    for (const Json& each : value.list()) found.parts.push_back(constant(each));
    found.least = found.parts.size();
    found.most = found.parts.size();
    found.rest = std::make_shared<Schema>(Schema::none("schema is false"));
  } else if (value.is_object()) {
    found.kind = Kind::kObject;
    for (const auto& [name, each] : value.object()) {
      found.properties.emplace_back(name, constant(each));
      found.required.push_back(name);
    }
    found.rest = std::make_shared<Schema>(Schema::none("schema is false"));
  } else {
    refuse_type("const", "a number of fewer digits", value);
  }
  return found;
}

void SchemaReader::define(const std::string& reference) {
  if (std::find(seen_.begin(), seen_.end(), reference) != seen_.end()) return;
  seen_.push_back(reference);
  definitions_[reference] = resource(find(reference));
}

// Return what a reference into the schema itself names: a JSON pointer.
const Json& SchemaReader::find(const std::string& reference) const {
  if (reference == "#" || reference == "#/") return root_;
  if (reference.compare(0, 2, "#/") != 0) throw Refused{"$ref: " + first_characters(reference, 100) + " is none into the schema itself: #/.."};
  const Json* at = &root_;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string name = reference.substr(begin, end - begin);
    for (size_t tilde = 0; (tilde = name.find('~', tilde)) != std::string::npos; ++tilde)
      if (const char code = tilde + 1 < name.size() ? name[tilde + 1] : ' '; code == '0' || code == '1') name.replace(tilde, 2, code == '0' ? "~" : "/");
    const Json* next = at->find(name);
    if (at->is_list() && !name.empty() && name.size() < 7 && name.find_first_not_of("0123456789") == std::string::npos) {
      const size_t place = std::stoul(name);
      if (place < at->list().size()) next = &at->list()[place];
    }
    if (!next) throw Refused{"$ref: found no " + first_characters(reference, 100)};
    at = next;
    begin = end + 1;
  }
  return *at;
}

}  // namespace spc::constraints
