// Intersections of JSON schemas.
#include <algorithm>

#include "schema.h"

namespace spc::constraints {
namespace {

using Kind = Schema::Kind;

constexpr int kDeepest = 100;

template <class Value>
std::optional<Value> larger(const std::optional<Value>& left, const std::optional<Value>& right) {
  return !left ? right : !right ? left : std::max(*left, *right);
}

template <class Value>
std::optional<Value> smaller(const std::optional<Value>& left, const std::optional<Value>& right) {
  return !left ? right : !right ? left : std::min(*left, *right);
}

const Schema* property_of(const Named& properties, const std::string& name) {
  for (const auto& [each, schema] : properties)
    if (each == name) return &schema;
  return nullptr;
}

Schema numbers(const Schema& left, const Schema& right) {
  Schema found = left;
  found.bounds = {larger(left.bounds.least, right.bounds.least), smaller(left.bounds.most, right.bounds.most), larger(left.bounds.above, right.bounds.above),
                  smaller(left.bounds.below, right.bounds.below)};
  found.is_integer = left.is_integer || right.is_integer;
  if (right.multiple) found.multiple = left.multiple ? common_multiple(*left.multiple, *right.multiple) : right.multiple;
  return found;
}

Schema booleans(const Schema& left, const Schema& right) {
  if (left.value == right.value || !right.value) return left;
  return left.value ? Schema::none("incompatible boolean values") : right;
}

}  // namespace

// Return the schema without options that nothing meets; a single option alone.
Schema SchemaReader::normalized(Schema schema) {
  if (schema.kind != Kind::kAnyOf && schema.kind != Kind::kOneOf) return schema;
  Schemas kept;
  std::optional<Schema> none;
  for (Schema& option : schema.parts) {
    if (option.kind == Kind::kAny && schema.kind == Kind::kAnyOf) return option;
    if (option.is_none())
      none = none ? none : std::optional(option);
    else if (option.kind == schema.kind)
      kept.insert(kept.end(), option.parts.begin(), option.parts.end());
    else
      kept.push_back(std::move(option));
  }
  if (kept.empty()) return none ? *none : Schema::none("it has no options");
  if (kept.size() == 1) return kept[0];
  if (schema.kind == Kind::kOneOf) {
    bool disjoint = true;
    for (size_t at = 0; at < kept.size(); ++at)
      for (size_t other = at + 1; other < kept.size() && disjoint; ++other) disjoint = are_disjoint(kept[at], kept[other]);
    if (disjoint) schema.kind = Kind::kAnyOf;
  }
  schema.parts = std::move(kept);
  return schema;
}

Schema SchemaReader::intersection(Schema left, Schema right, int depth) {
  count();
  if (depth > kDeepest) throw Refused{"it is nested too deeply"};
  if (left.kind == Kind::kAny || right.is_none()) return normalized(left.is_none() ? left : right);
  if (right.kind == Kind::kAny || left.is_none()) return normalized(left);
  if (left.kind == Kind::kRef) return normalized(with_reference(left.name, std::move(right), true, depth + 1));
  if (right.kind == Kind::kRef) return normalized(with_reference(right.name, std::move(left), false, depth + 1));
  for (const Kind kind : {Kind::kOneOf, Kind::kAnyOf}) {
    if (left.kind == kind) {
      for (Schema& option : left.parts) option = intersection(std::move(option), right, depth + 1);
      return normalized(std::move(left));
    }
    if (right.kind == kind) {
      for (Schema& option : right.parts) option = intersection(left, std::move(option), depth + 1);
      return normalized(std::move(right));
    }
  }
  if (left.kind != right.kind) return Schema::none("incompatible types");
  switch (left.kind) {
    case Kind::kBoolean: return booleans(left, right);
    case Kind::kNumber: return numbers(left, right);
    case Kind::kArray: return arrays(std::move(left), std::move(right), depth);
    case Kind::kObject: return objects(std::move(left), std::move(right), depth);
    default: break;
  }
  if (left.kind == Kind::kString) {
    left.least = std::max(left.least, right.least);
    left.most = smaller(left.most, right.most);
    if (left.pattern && right.pattern) {
      left.pattern = expressions_.both({*left.pattern, *right.pattern});
      left.literal.reset();
    } else if (right.pattern) {
      left.pattern = right.pattern;
      left.literal = right.literal;
    }
  }
  return left;
}

Schema SchemaReader::with_reference(const std::string& reference, Schema other, bool is_first, int depth) {
  define(reference);
  const auto found = definitions_.find(reference);
  if (found == definitions_.end()) throw Refused{"circular references with sibling keys are not supported: " + first_characters(reference, 100)};
  return is_first ? intersection(found->second, std::move(other), depth + 1) : intersection(std::move(other), found->second, depth + 1);
}

Schema SchemaReader::arrays(Schema left, Schema right, int depth) {
  const size_t size = std::max(left.parts.size(), right.parts.size());
  left.parts.resize(size, left.rest ? *left.rest : Schema());
  right.parts.resize(size, right.rest ? *right.rest : Schema());
  for (size_t at = 0; at < size; ++at) left.parts[at] = intersection(std::move(left.parts[at]), std::move(right.parts[at]), depth + 1);
  left.least = std::max(left.least, right.least);
  left.most = smaller(left.most, right.most);
  if (left.rest && right.rest)
    left.rest = std::make_shared<Schema>(intersection(*left.rest, *right.rest, depth + 1));
  else if (right.rest)
    left.rest = right.rest;
  return left;
}

Schema SchemaReader::objects(Schema left, Schema right, int depth) {
  Schema found{Kind::kObject};
  Schema unnamed = left;  // the first one is looked at without its own properties
  unnamed.properties.clear();
  for (const auto& [name, schema] : left.properties) found.properties.emplace_back(name, intersection(schema, of_property(right, name), depth + 1));
  for (const auto& [name, schema] : right.properties)
    if (!property_of(found.properties, name)) found.properties.emplace_back(name, intersection(of_property(unnamed, name), schema, depth + 1));
  found.required = left.required;
  for (const std::string& name : right.required)
    if (!found.requires_property(name)) found.required.push_back(name);
  for (const auto& [pattern, schema] : left.patterns) {
    const Schema* const other = property_of(right.patterns, pattern);
    found.patterns.emplace_back(pattern, intersection(schema, other ? *other : right.rest ? *right.rest : Schema(), depth + 1));
  }
  for (const auto& [pattern, schema] : right.patterns)
    if (!property_of(left.patterns, pattern)) found.patterns.emplace_back(pattern, intersection(schema, left.rest ? *left.rest : Schema(), depth + 1));
  check_disjoint(found.patterns);
  found.rest = left.rest ? left.rest : right.rest;
  if (left.rest && right.rest) found.rest = std::make_shared<Schema>(intersection(*left.rest, *right.rest, depth + 1));
  found.least = std::max(left.least, right.least);
  found.most = smaller(left.most, right.most);
  return checked(std::move(found));
}

Schema SchemaReader::of_property(const Schema& object, const std::string& name) {
  if (const Schema* const own = property_of(object.properties, name)) return *own;
  for (const auto& [pattern, schema] : object.patterns)
    if (matches(pattern, name)) return schema;
  return object.rest ? *object.rest : Schema();
}

void SchemaReader::check_disjoint(const Named& patterns) {
  for (size_t at = 0; at < patterns.size(); ++at)
    for (size_t other = at + 1; other < patterns.size(); ++other)
      if (!expressions_.is_nothing(expressions_.both({parse_search(expressions_, patterns[at].first), parse_search(expressions_, patterns[other].first)})))
        throw Refused{"patternProperties: /" + first_characters(patterns[at].first, 100) + "/ and /" + first_characters(patterns[other].first, 100) +
                      "/ are not disjoint"};
}

// Return whether it is plain that no value meets both.
bool SchemaReader::are_disjoint(const Schema& left, const Schema& right) {
  if (left.is_none() || right.is_none()) return true;
  for (const Kind kind : {Kind::kAny, Kind::kRef})
    if (left.kind == kind || right.kind == kind) return false;
  if (left.kind == Kind::kBoolean && right.kind == Kind::kBoolean) return left.value && right.value && left.value != right.value;
  for (const Kind kind : {Kind::kAnyOf, Kind::kOneOf}) {
    if (left.kind == kind) return std::all_of(left.parts.begin(), left.parts.end(), [&](const Schema& each) { return are_disjoint(each, right); });
    if (right.kind == kind) return std::all_of(right.parts.begin(), right.parts.end(), [&](const Schema& each) { return are_disjoint(left, each); });
  }
  if (left.kind == Kind::kString && right.kind == Kind::kString) return left.literal && right.literal && left.literal != right.literal;
  if (left.kind != Kind::kObject || right.kind != Kind::kObject) return left.kind != right.kind;
  std::vector<std::string> names = left.required;
  names.insert(names.end(), right.required.begin(), right.required.end());
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return are_disjoint(of_property(left, name), of_property(right, name)); });
}

}  // namespace spc::constraints
