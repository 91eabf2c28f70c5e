// A JSON schema as the set of values that it allows (llguidance's json/schema.rs). Unknown keywords are refused, not ignored.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../json.h"
#include "expressions.h"
#include "numbers.h"
#include "regex.h"

namespace spc::constraints {

struct Schema;
using Schemas = std::vector<Schema>;
using Named = std::vector<std::pair<std::string, Schema>>;

struct Schema {
  enum class Kind { kAny, kNone, kNull, kBoolean, kNumber, kString, kArray, kObject, kAnyOf, kOneOf, kRef };

  Kind kind = Kind::kAny;
  std::string name = {};                // kNone: why; kRef: what
  std::optional<bool> value = {};       // kBoolean
  Bounds bounds = {};                   // kNumber
  bool is_integer = false;              // kNumber
  std::optional<Decimal> multiple = {};  // kNumber
  // Number of characters of a kString, items of a kArray, properties of a kObject.
  size_t least = 0;
  std::optional<size_t> most = {};
  std::optional<Expr> pattern = {};        // kString
  std::optional<std::string> literal = {};  // kString: its pattern is this text
  Schemas parts = {};                      // kArray: the first items; kAnyOf, kOneOf
  std::shared_ptr<Schema> rest = {};       // kArray: items; kObject: additional properties; none for any
  Named properties = {}, patterns = {};    // kObject
  std::vector<std::string> required = {};  // kObject

  static Schema none(const std::string& why);
  bool is_none() const { return kind == Kind::kNone; }
  bool requires_property(const std::string& property) const;
};

// Reads a schema, and those that it refers to.
class SchemaReader {
 public:
  // Both are used while this lives.
  SchemaReader(const Json& root, Expressions& expressions) : root_(root), expressions_(expressions) {}

  // All throw Refused and TooComplex.
  Schema read() { return resource(root_); }
  // Return what a reference that was met means.
  const Schema& definition(const std::string& reference) const { return definitions_.at(reference); }
  // Return the schema of an object's property of this name.
  Schema of_property(const Schema& object, const std::string& name);
  bool matches(const std::string& pattern, const std::string& name) { return expressions_.matches(parse_search(expressions_, pattern), name); }

 private:
  using Keywords = std::vector<std::pair<std::string, const Json*>>;

  Schema resource(const Json& contents);
  Schema contents_of(const Json::Object& contents);
  Schema apply(Schema result, const std::string& keyword, const Json& value);
  Schema of_types(const Keywords& keywords);
  Schema of_type(const std::string& type, const Keywords& keywords);
  Schema number(const Keywords& keywords, bool is_integer);
  Schema string(const Keywords& keywords);
  Schema array(const Keywords& keywords);
  Schema object(const Keywords& keywords);
  Named named(const Json* value, const char* keyword);
  Schema constant(const Json& value);
  void define(const std::string& reference);
  const Json& find(const std::string& reference) const;
  void check_disjoint(const Named& patterns);
  void count();

  Schema normalized(Schema schema);
  Schema intersection(Schema left, Schema right, int depth);
  Schema with_reference(const std::string& reference, Schema other, bool is_first, int depth);
  Schema arrays(Schema left, Schema right, int depth);
  Schema objects(Schema left, Schema right, int depth);
  bool are_disjoint(const Schema& left, const Schema& right);

  const Json& root_;
  Expressions& expressions_;
  std::map<std::string, Schema> definitions_;
  std::vector<std::string> seen_;
  size_t compiled_ = 0;
  int depth_ = 0;
};

// Return the schema with what no text can meet said.
Schema checked(Schema object);

}  // namespace spc::constraints
