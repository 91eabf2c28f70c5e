#include "constraint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "../errors.h"
#include "../files.h"
#include "../words.h"
#include "lark.h"
#include "regex.h"
#include "schema_grammar.h"

namespace spc::constraints {
namespace {

constexpr size_t kShown = 300;
constexpr int kDeepestSchema = 124;  // of llguidance's reader, also where nothing reads it, as in unknown keys
// Blanks between the parts of a JSON text: as Python's runtime allows them.
constexpr char kBlank[] = " |\\n{1,2}[ \\t]{0,20}";

[[noreturn]] void refuse(const std::string& kind, const std::string& what, const std::string& hint) {
  throw Error(Kind::kUsage, "constraint " + kind + ": " + what, hint);
}

// Return how many lists and objects are inside each other. Json bounds it.
int depth_of(const Json& json) {
  int deepest = 0;
  if (json.is_list())
    for (const Json& each : json.list()) deepest = std::max(deepest, depth_of(each));
  else if (json.is_object())
    for (const auto& [name, each] : json.object()) deepest = std::max(deepest, depth_of(each));
  else
    return 0;
  return deepest + 1;
}

Json schema_of(const std::string& kind, const Json& given) {
  Json schema = given;
  if (given.is_text()) {
    try {
      schema = Json::parse(given.text());
    } catch (const JsonError& error) {
      refuse(kind, std::string("the schema is no JSON: ") + error.what(), "give a JSON schema, as text or as a mapping");
    }
  }
  if (schema.is_bool()) schema = schema.boolean() ? Json(Json::Object{}) : Json(Json::Object{{"not", Json(Json::Object{})}});
  if (!schema.is_object())
    refuse(kind, std::string("received ") + schema.python_type() + ", expected a JSON schema, which is an object", "give one such as {\"type\": \"object\"}");
  if (depth_of(schema) > kDeepestSchema) throw Refused{"it is nested too deeply"};
  if (const Json* const given_options = schema.find("x-guidance"))
    refuse(kind, "received x-guidance: " + first_characters(given_options->dump(), 100) + ", which this runtime does not read", "leave it out");
  return schema;
}

Expr choices_of(Expressions& expressions, const Json& given) {
  const Json::List texts = given.is_text() ? Json::List{given} : given.list();
  if (texts.empty() || std::any_of(texts.begin(), texts.end(), [](const Json& each) { return !each.is_text() || each.text().empty(); }))
    refuse("choice", "received " + first_characters(given.repr(), kShown) + ", expected one text or more, none of them empty", "give them as in [\"yes\", \"no\"]");
  std::vector<Expr> options;
  for (const Json& each : texts) options.push_back(expressions.literal(each.text()));
  return expressions.either(std::move(options));
}

// Throws Error(kUsage), Refused and TooComplex.
std::shared_ptr<Grammar> grammar_of(const std::string& kind, const Json& given, const Tokens& tokens) {
  auto grammar = std::make_shared<Grammar>();
  Expressions& expressions = grammar->expressions;
  const auto alone = [&](Expr expression) {
    grammar->begin_part(kNothing, true);
    return grammar->lexeme(expression);
  };
  Symbol start = 0;
  if (kind == constraint_kind::kJsonObject || kind == constraint_kind::kJsonSchema) {
    const Json object(Json::Object{{"type", "object"}});
    const Json schema = kind == constraint_kind::kJsonObject ? object : schema_of(kind, given);
    start = add_schema(*grammar, schema, parse_regex(expressions, kBlank));
  } else if (kind == constraint_kind::kChoice) {
    start = alone(choices_of(expressions, given));
  } else {
    if (!given.is_text() || given.text().empty()) refuse(kind, "received " + first_characters(given.repr(), kShown) + ", expected a text", "give at least one character");
    if (!is_utf8(given.text()))
      refuse(kind, "received a text with half a surrogate pair, expected Unicode text", "give both halves, or the character itself");
    if (kind == constraint_kind::kRegex)
      start = alone(parse_regex(expressions, given.text()));
    else
      start = add_lark(*grammar, given.text(), [&](const std::string& text) { return tokens.special(text); });
  }
  grammar->finish(start);
  return grammar;
}

}  // namespace

Compiler::Compiler(const Manifest& manifest, std::string tokenizer) : manifest_(manifest), tokenizer_(std::move(tokenizer)) {
  is_supported_ = std::any_of(manifest.graphs.begin(), manifest.graphs.end(), [](const Graph& graph) { return graph.input(names::kAllowed) != nullptr; });
}

std::shared_ptr<const Tokens> Compiler::tokens() const {
  if (!is_supported_) throw Error(Kind::kUsage, "constraint: this bundle was built without constraints", "set constraints: true in the recipe");
  if (tokenizer_.empty())
    throw Error(Kind::kUsage, "constraint: this bundle has no tokenizer, so no text to constrain", "add the tokenizer to the target's folder and build again");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!tokens_) tokens_ = std::make_shared<const Tokens>(Json::parse(read_file(tokenizer_)), manifest_.vocabulary_size, manifest_.eos_token_ids);
  return tokens_;
}

void check_kind(const std::string& kind) {
  if (std::find(std::begin(constraint_kind::kAll), std::end(constraint_kind::kAll), kind) != std::end(constraint_kind::kAll)) return;
  const std::string known = comma_separated(constraint_kind::kAll);
  throw Error(Kind::kUsage, "constraint: received the kind " + python_repr(kind) + ", expected one of " + known, "give one of them");
}

std::shared_ptr<const Constraint> Compiler::compile(const std::string& kind, const Json& text, const SizeLimit& most) const {
  const std::shared_ptr<const Tokens> known = tokens();
  check_kind(kind);
  const auto size = static_cast<int64_t>((text.is_text() ? text.text() : text.dump()).size());
  if (size > most.bytes)
    throw Error(Kind::kUsage, "received a constraint of " + std::to_string(size) + " bytes, expected at most " + std::to_string(most.bytes) + ": the limit grammar_bytes",
                most.hint);
  try {
    Matcher matcher(known, grammar_of(kind, text, *known), known->ends());
    const std::string end = matcher.allows_any() ? "" : matcher.end();
    if (end == finish::kStop)
      refuse(kind, "received one that no text can meet but an empty one, expected one that some can", "allow at least one character");
    if (!end.empty())
      refuse(kind, "received one whose texts no token of this model can begin, expected one that some can",
             "allow other characters; `/tokenize` or the tokenizer shows which tokens there are");
    return std::make_shared<const Constraint>(std::move(matcher));
  } catch (const Refused& error) {
    refuse(kind, "this runtime does not take it: " + first_characters(error.why, kShown), "leave out what it does not know: nothing of a constraint is ignored");
  } catch (const TooComplex&) {
    refuse(kind, "it takes more work or memory than one may have", kSimpler);
  }
}

}  // namespace spc::constraints
