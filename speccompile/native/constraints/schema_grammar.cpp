#include "schema_grammar.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "schema.h"

namespace spc::constraints {
namespace {

using Kind = Schema::Kind;

// No value meets a schema: why.
struct Unsatisfiable {
  std::string why;
};

// A character of a JSON string, also as any escape (llguidance's json_general_unicode_string).
constexpr char kCharacter[] =
    "[^\"\\\\\\x00-\\x1F\\x7F]|\\\\[nrbtf\\\\\"]|\\\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    "|[dD][89aAbB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})";

class SchemaGrammar {
 public:
  SchemaGrammar(Grammar& grammar, const Json& schema) : grammar_(grammar), expressions_(grammar.expressions), reader_(schema, grammar.expressions) {}

  Symbol root() {
    const Symbol found = of(reader_.read());
    while (!pending_.empty()) {
      const auto [reference, symbol] = pending_.back();
      pending_.pop_back();
      grammar_.define(symbol, of(reader_.definition(reference)));
    }
    return found;
  }

 private:
  using Items = std::vector<std::pair<Symbol, bool>>;  // a property, whether it is required

  Symbol of(const Schema& schema) {
    if (const auto lexeme = as_lexeme(schema)) return grammar_.lexeme(*lexeme);
    switch (schema.kind) {
      case Kind::kNone: throw Unsatisfiable{schema.name};
      case Kind::kArray: return array(schema);
      case Kind::kObject: return object(schema);
      case Kind::kAnyOf: return any_of(schema.parts);
      case Kind::kOneOf: throw Refused{"oneOf is not supported where its options may be met together"};
      case Kind::kRef: return definition(schema.name);
      default: return any();
    }
  }

  // Return the expression of a schema whose values are single lexemes.
  std::optional<Expr> as_lexeme(const Schema& schema) {
    switch (schema.kind) {
      case Kind::kNull: return expressions_.literal("null");
      case Kind::kBoolean: {
        if (schema.value) return expressions_.literal(*schema.value ? "true" : "false");
        return expressions_.either({expressions_.literal("true"), expressions_.literal("false")});
      }
      case Kind::kNumber: return number(schema);
      case Kind::kString: return string(schema);
      default: return std::nullopt;
    }
  }

  Expr number(const Schema& schema) {
    if (std::string why = unsatisfiable(schema.bounds); !why.empty()) throw Unsatisfiable{std::move(why)};
    const Expr found = parse_regex(expressions_, schema.is_integer ? integers_between(schema.bounds) : numbers_between(schema.bounds));
    if (!schema.multiple) return found;
    const Expr sign = expressions_.repeated(expressions_.literal("-"), 0, 1);
    return expressions_.both({found, expressions_.sequence(sign, expressions_.multiple(schema.multiple->coefficient, schema.multiple->digits))});
  }

  Expr string(const Schema& schema) {
    const uint32_t least = static_cast<uint32_t>(schema.least), most = schema.most ? static_cast<uint32_t>(*schema.most) : kUnlimited;
    if (least > most) throw Unsatisfiable{"minLength is greater than maxLength"};
    const Expr sized = expressions_.repeated(expressions_.character(~unicode::Set()), least, most);
    if (!schema.pattern) return expressions_.quoted(sized);
    const Expr found = least || schema.most ? expressions_.both({*schema.pattern, sized}) : *schema.pattern;
    if (expressions_.is_nothing(found)) throw Unsatisfiable{"no text has this pattern and length"};
    return expressions_.quoted(found);
  }

  Symbol any_of(const Schemas& options) {
    std::vector<Expr> lexemes;
    std::vector<Symbol> symbols;
    std::string why = "it has no options";
    for (const Schema& option : options) {
      try {
        if (const auto lexeme = as_lexeme(option))
          lexemes.push_back(*lexeme);
        else
          symbols.push_back(of(option));
      } catch (const Unsatisfiable& error) {
        why = error.why;
      }
    }
    if (!lexemes.empty()) symbols.push_back(grammar_.lexeme(expressions_.either(std::move(lexemes))));
    if (symbols.empty()) throw Unsatisfiable{why};
    return grammar_.selected(symbols);
  }

  Symbol definition(const std::string& reference) {
    const auto [found, is_new] = definitions_.emplace(reference, 0);
    if (is_new) {
      found->second = grammar_.placeholder();
      pending_.emplace_back(reference, found->second);
    }
    return found->second;
  }

  Symbol any() {
    if (any_) return *any_;
    any_ = grammar_.placeholder();
    Schema number{Kind::kNumber}, list{Kind::kArray}, object{Kind::kObject};
    const Expr words = expressions_.either({expressions_.literal("true"), expressions_.literal("false")});
    grammar_.define(*any_, grammar_.selected({grammar_.literal("null"), grammar_.lexeme(words), of(number), any_string(), array(list), this->object(object)}));
    return *any_;
  }

  Symbol any_string() { return grammar_.lexeme(expressions_.quoted(expressions_.any_text())); }

  Symbol comma() { return grammar_.literal(","); }

  // One or more, with commas between them. least, most: of them.
  Symbol listed(Symbol item, size_t least, std::optional<size_t> most) {
    const size_t more = most ? std::max<size_t>(*most, 1) - 1 : kUnlimited;
    return grammar_.joined({grammar_.repeated(grammar_.joined({item, comma()}), std::max<size_t>(least, 1) - 1, more), item});
  }

  Symbol array(const Schema& schema) {
    if (schema.most && schema.least > *schema.most) throw Unsatisfiable{"minItems is greater than maxItems"};
    const std::optional<Symbol> rest = rest_of(schema);
    std::vector<Symbol> required, optional;
    bool is_open = !schema.most;
    const size_t count = schema.most ? *schema.most : std::max(schema.parts.size(), schema.least);
    for (size_t at = 0; at < count; ++at) {
      std::optional<Symbol> item = rest;
      if (at < schema.parts.size()) {
        try {
          item = of(schema.parts[at]);
        } catch (const Unsatisfiable& error) {
          if (at < schema.least) throw Unsatisfiable{"a required item: " + error.why};
          is_open = false;
          break;
        }
      }
      if (!item) break;
      (at < schema.least ? required : optional).push_back(*item);
    }
    if (is_open && rest) optional.push_back(listed(*rest, 1, std::nullopt));
    std::vector<Symbol> found = {grammar_.literal("[")};
    for (size_t at = 0; at < required.size(); ++at) {
      if (at) found.push_back(comma());
      found.push_back(required[at]);
    }
    if (!optional.empty()) {
      Symbol tail = grammar_.joined({});
      for (size_t at = optional.size(); at-- > 1;) tail = grammar_.optional(grammar_.joined({comma(), optional[at], tail}));
      tail = grammar_.joined({optional[0], tail});
      found.push_back(grammar_.optional(required.empty() ? tail : grammar_.joined({comma(), tail})));
    }
    found.push_back(grammar_.literal("]"));
    return grammar_.joined(found);
  }

  // Return the symbol of the items behind the named ones, none where nothing meets their schema and none is required.
  std::optional<Symbol> rest_of(const Schema& schema) {
    try {
      return schema.rest ? of(*schema.rest) : any();
    } catch (const Unsatisfiable& error) {
      if (schema.parts.size() >= schema.least) return std::nullopt;
      throw Unsatisfiable{"a required item: " + error.why};
    }
  }

  Symbol object(const Schema& schema) {
    std::vector<std::string> names, taken;
    for (const auto& each : schema.properties) names.push_back(each.first);
    for (const std::string& each : schema.required)
      if (std::find(names.begin(), names.end(), each) == names.end()) names.push_back(each);
    Items items;
    size_t required = 0;
    for (const std::string& name : names) {
      taken.push_back(name);
      const bool is_required = schema.requires_property(name);
      try {
        const Symbol value = of(reader_.of_property(schema, name));
        items.emplace_back(grammar_.joined({grammar_.literal(Json(name).dump()), colon(), value}), is_required);
      } catch (const Unsatisfiable& error) {
        if (is_required) throw Unsatisfiable{"the required property " + name + ": " + error.why};
        continue;
      }
      required += is_required;
    }
    const size_t least = schema.least > required ? schema.least - required : 0;
    std::optional<size_t> most;
    if (schema.most) most = *schema.most > required ? *schema.most - required : 0;
    if (items.size() > required && (least > 0 || most)) {
      if (least > 1 || most.value_or(1) != 1 || !schema.patterns.empty() || !schema.rest || !schema.rest->is_none())
        throw Refused{"minProperties and maxProperties are only supported where all properties are required"};
      return one_of_optional(items, least, most.has_value());
    }
    const std::vector<Symbol> others = other_properties(schema, taken);
    if (!others.empty() && most != std::optional<size_t>(0))
      items.emplace_back(listed(grammar_.selected(others), least, most), least > 0);
    else if (least > 0)
      throw Unsatisfiable{"minProperties is greater than the number of properties"};
    return fields(items);
  }

  Symbol colon() { return grammar_.literal(":"); }

  // Objects with at most, at least, or exactly one of the optional properties.
  Symbol one_of_optional(const Items& items, size_t least, bool has_most) {
    std::vector<Symbol> options;
    for (size_t chosen = 0; chosen < items.size(); ++chosen) {
      if (items[chosen].second) continue;
      Items kept;
      for (size_t at = 0; at < items.size(); ++at)
        if (!has_most || at == chosen || items[at].second) kept.emplace_back(items[at].first, has_most || items[at].second || at == chosen);
      options.push_back(fields(kept));
    }
    if (has_most && least == 0) {
      Items kept;
      std::copy_if(items.begin(), items.end(), std::back_inserter(kept), [](const auto& each) { return each.second; });
      options.push_back(fields(kept));
    }
    return grammar_.selected(options);
  }

  // Return the symbols of properties with no name of their own.
  std::vector<Symbol> other_properties(const Schema& schema, const std::vector<std::string>& taken) {
    std::vector<Symbol> found;
    std::vector<Expr> names;
    for (const std::string& each : taken) names.push_back(expressions_.literal(Json(each).dump()));
    for (const auto& [pattern, value] : schema.patterns) {
      Expr name = expressions_.quoted(parse_search(expressions_, pattern));
      names.push_back(name);
      std::vector<Expr> excluded;
      for (size_t at = 0; at < taken.size(); ++at)
        if (reader_.matches(pattern, taken[at])) excluded.push_back(names[at]);
      if (!excluded.empty()) name = expressions_.both({name, expressions_.negated(expressions_.either(excluded))});
      add_property(found, name, value);
    }
    Expr name = expressions_.quoted(expressions_.any_text());
    if (!names.empty()) {
      const Expr character = parse_regex(expressions_, kCharacter), quote = expressions_.literal("\"");
      const Expr any = expressions_.sequence(quote, expressions_.sequence(expressions_.repeated(character, 0, kUnlimited), quote));
      name = expressions_.both({any, expressions_.negated(expressions_.either(names))});
    }
    add_property(found, name, schema.rest ? *schema.rest : Schema());
    return found;
  }

  void add_property(std::vector<Symbol>& found, Expr name, const Schema& value) {
    try {
      const Symbol symbol = of(value);
      found.push_back(grammar_.joined({grammar_.lexeme(name), colon(), symbol}));
    } catch (const Unsatisfiable&) {  // no such property then
    }
  }

  Symbol fields(const Items& items) {
    // From the last to the first: what follows a property that is there, and what follows none.
    Symbol behind = grammar_.joined({}), alone = behind;
    for (size_t at = items.size(); at-- > 0;) {
      const auto& [item, is_required] = items[at];
      const Symbol with = grammar_.joined({item, behind}), continued = grammar_.joined({comma(), item});
      alone = is_required ? with : grammar_.selected({with, alone});
      behind = grammar_.joined({is_required ? continued : grammar_.optional(continued), behind});
    }
    return grammar_.joined({grammar_.literal("{"), alone, grammar_.literal("}")});
  }

  Grammar& grammar_;
  Expressions& expressions_;
  SchemaReader reader_;
  std::map<std::string, Symbol> definitions_;
  std::vector<std::pair<std::string, Symbol>> pending_;
  std::optional<Symbol> any_;
};

}  // namespace

Symbol add_schema(Grammar& grammar, const Json& schema, Expr blank) {
  grammar.begin_part(blank, true);
  try {
    return SchemaGrammar(grammar, schema).root();
  } catch (const Unsatisfiable& error) {
    throw Refused{"Unsatisfiable schema: " + error.why};
  }
}

}  // namespace spc::constraints
