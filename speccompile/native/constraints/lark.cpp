#include "lark.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lark_syntax.h"
#include "regex.h"
#include "schema_grammar.h"
#include "tokens.h"

namespace spc::constraints {
namespace {

using Kind = LarkTerm::Kind;

constexpr size_t kDeepest = 500;  // of names in each other, on the stack

// Return a text as a regular expression.
std::string escaped(const std::string& text) {
  std::string found;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~").find(c) != std::string_view::npos) found += '\\';
    found += c;
  }
  return found;
}

class LarkCompiler {
 public:
  LarkCompiler(Grammar& grammar, LarkGrammar lark, const std::function<int64_t(const std::string&)>& special)
      : grammar_(grammar), expressions_(grammar.expressions), lark_(std::move(lark)), special_(special) {}

  Symbol start() {
    if (!lark_.rules.count("start")) throw Refused{"no start rule found"};
    std::vector<Expr> ignored;
    for (const LarkOptions& each : lark_.ignored) ignored.push_back(token(each));
    grammar_.begin_part(expressions_.either(std::move(ignored)), false);
    return rule("start");
  }

 private:
  Symbol rule(const std::string& name) {
    const auto [found, is_new] = rules_.emplace(name, 0);
    if (!is_new) return found->second;
    const Symbol made = found->second = grammar_.placeholder();
    const auto known = lark_.rules.find(name);
    if (known == lark_.rules.end()) throw Refused{"unknown name: " + name};
    if (++depth_ > kDeepest) throw TooComplex();
    grammar_.define(made, options(known->second));
    --depth_;
    return made;
  }

  Symbol options(const LarkOptions& given) {
    std::vector<Symbol> found;
    for (const LarkOption& option : given) {
      if (option.size() != 1) throw Refused{"& is only supported for tokens, not rules; try renaming the rule to UPPERCASE"};
      std::vector<Symbol> symbols;
      for (const LarkTerm& each : option[0]) symbols.push_back(term(each));
      found.push_back(grammar_.joined(symbols));
    }
    return grammar_.selected(found);
  }

  Symbol term(const LarkTerm& given) {
    const Symbol found = atom(given);
    return given.repeats ? grammar_.repeated(found, given.repeats->first, given.repeats->second) : found;
  }

  Symbol atom(const LarkTerm& given) {
    switch (given.kind) {
      case Kind::kGroup: return options(given.options);
      case Kind::kOptional: return grammar_.optional(options(given.options));
      case Kind::kSpecial: return special_token(given.text);
      case Kind::kJson: return schema(given.schema);
      case Kind::kName:
        if (!lark_.tokens.count(given.text)) return rule(given.text);
        break;
      default: break;
    }
    return grammar_.lexeme(token_atom(given));
  }

  Symbol special_token(const std::string& text) {
    int64_t token = -1;
    if (text.size() > 4 && text.size() < 14 && text[1] == '[' && text.find_first_not_of("0123456789", 2) == text.size() - 2)
      token = std::stoll(text.substr(2));
    else if (text[1] != '[')
      token = special_(text);
    if (token < 0) throw Refused{text + " is no special token of this tokenizer, or a list of some, which is not known here"};
    return grammar_.lexeme(expressions_.literal(Tokens::mark(token)), true);
  }

  Symbol schema(Json schema) {
    Expr blank = parse_regex(expressions_, "[\\x20\\x0A\\x0D\\x09]+");
    if (const Json* const given = schema.find("x-guidance")) {
      for (const auto& [name, value] : given->object()) {
        if (name == "whitespace_pattern" && value.is_text())
          blank = parse_regex(expressions_, value.text());
        else if (name != "lenient" || value != Json(false))
          throw Refused{"x-guidance: " + name + ": " + value.dump() + " is not known here"};
      }
      Json::Object& members = schema.object();
      members.erase(std::remove_if(members.begin(), members.end(), [](const auto& each) { return each.first == "x-guidance"; }), members.end());
    }
    const int around = grammar_.part();
    const Symbol found = add_schema(grammar_, schema, blank);
    grammar_.set_part(around);
    return found;
  }

  Expr token(const LarkOptions& given) {
    std::vector<Expr> options;
    for (const LarkOption& option : given) {
      std::vector<Expr> parts;
      for (const LarkTerms& terms : option) {
        Expr part = kEmpty;
        for (size_t at = terms.size(); at-- > 0;) part = expressions_.sequence(token_term(terms[at]), part);
        parts.push_back(part);
      }
      options.push_back(expressions_.both(std::move(parts)));
    }
    return expressions_.either(std::move(options));
  }

  Expr token_term(const LarkTerm& given) {
    const Expr found = token_atom(given);
    if (!given.repeats) return found;
    return expressions_.repeated(found, static_cast<uint32_t>(given.repeats->first), static_cast<uint32_t>(given.repeats->second));
  }

  Expr token_atom(const LarkTerm& given) {
    switch (given.kind) {
      case Kind::kGroup: return token(given.options);
      case Kind::kOptional: return expressions_.repeated(token(given.options), 0, 1);
      case Kind::kNegated: return expressions_.both({expressions_.negated(token(given.options)), expressions_.any_text()});
      case Kind::kName: return named_token(given.text);
      case Kind::kText: return given.flags.empty() ? expressions_.literal(given.text) : parse_regex(expressions_, "(?i)" + escaped(given.text));
      case Kind::kRegex:
        if (given.flags.find('l') != std::string::npos) throw Refused{"l-flag is not supported in regexes"};
        return parse_regex(expressions_, given.flags.empty() ? given.text : "(?" + given.flags + ")" + given.text);
      case Kind::kRange: return range(given);
      default: throw Refused{(given.kind == Kind::kJson ? "%json" : given.text) + " cannot be used in terminals"};
    }
  }

  Expr range(const LarkTerm& given) {
    for (const std::string& text : {given.text, given.end})
      if (text.empty() || unicode::length(text[0]) != text.size()) throw Refused{"a range whose end is not a single character"};
    const uint32_t from = unicode::decode(given.text, 0).code, to = unicode::decode(given.end, 0).code;
    if (to < from) throw Refused{"a range whose end is before its begin"};
    return expressions_.character(unicode::Set({{from, to}}));
  }

  Expr named_token(const std::string& name) {
    if (const auto found = tokens_.find(name); found != tokens_.end()) return found->second;
    const auto known = lark_.tokens.find(name);
    if (known == lark_.tokens.end()) throw Refused{"unknown name: " + name};
    if (!open_.insert(name).second) throw Refused{"circular reference in the definition of " + name};
    if (open_.size() > kDeepest) throw TooComplex();
    const Expr found = tokens_[name] = token(known->second);
    open_.erase(name);
    return found;
  }

  Grammar& grammar_;
  Expressions& expressions_;
  const LarkGrammar lark_;
  const std::function<int64_t(const std::string&)>& special_;
  std::map<std::string, Symbol> rules_;
  std::map<std::string, Expr> tokens_;
  std::set<std::string> open_;  // tokens whose definitions are being read
  size_t depth_ = 0;            // of rules in each other
};

}  // namespace

Symbol add_lark(Grammar& grammar, const std::string& source, const std::function<int64_t(const std::string&)>& special) {
  return LarkCompiler(grammar, read_lark(source), special).start();
}

}  // namespace spc::constraints
