#include "render.h"

#include <algorithm>
#include <map>

#include "builtins.h"

namespace spc::jinja {
namespace {

const std::string kCall("\0call", 5);  // of a recursive loop: no name of a template is like it
constexpr int kDeepest = 600;  // of expressions and statements inside each other, through calls of macros

// Variables of a block, and those around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer = nullptr) : outer(std::move(outer)) {}
  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer.get())
      if (const auto found = scope->values.find(name); found != scope->values.end()) return &found->second;
    return nullptr;
  }
  std::map<std::string, Value> values;
  const std::shared_ptr<Scope> outer;
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  std::string run(const Statements& statements, const Dict& variables) {
    const auto scope = std::make_shared<Scope>();
    for (const auto& [name, value] : variables.items()) scope->values[name] = value;
    std::string found;
    run(statements, scope, found);
    return found;
  }

 private:
  // Adds the line of the running statement to an error that has none, and counts the depth.
  template <class Work>
  auto at_line(int64_t line, const Work& work) {
    struct Depth {
      int& depth;
      ~Depth() { --depth; }
    } const deeper{depth_};
    if (++depth_ > kDeepest) throw TemplateError{"it is nested or calls itself deeper than " + std::to_string(kDeepest), line};
    try {
      budget_.step();
      return work();
    } catch (TemplateError& error) {
      if (!error.line) error.line = line;
      throw;
    }
  }

  Flow run(const Statements& statements, const ScopePtr& scope, std::string& to) {
    for (const Statement& each : statements) {
      const Flow flow = at_line(each.line, [&] { return run(each, scope, to); });
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& statement, const ScopePtr& scope, std::string& to) {
    switch (statement.type) {
      case Statement::Type::kText: write(statement.text, to); break;
      case Statement::Type::kOutput: write(evaluate(statement.parts[0], scope).str(), to); break;
      case Statement::Type::kIf: return run(evaluate(statement.parts[0], scope).truth() ? statement.body : statement.otherwise, scope, to);
      case Statement::Type::kFor: return loop(statement, evaluate(statement.parts[0], scope), scope, 0, to);
      case Statement::Type::kSet: assign(statement.names, evaluate(statement.parts[0], scope), *scope); break;
      case Statement::Type::kSetBlock: assign(statement.names, filtered(statement, written(statement.body, scope), scope), *scope); break;
      case Statement::Type::kSetAttribute: set_attribute(statement, scope); break;
      case Statement::Type::kMacro: scope->values[statement.names[0]] = macro(statement, scope); break;
      case Statement::Type::kCallBlock: write(call(statement.parts[0], scope, macro(statement, scope)).str(), to); break;
      case Statement::Type::kFilterBlock: {
        const Value found = filtered(statement, written(statement.body, scope), scope);
        if (!found.is_text()) throw TemplateError{std::string("the filter of a block gives a ") + found.type() + ", expected a text"};
        write(found.text(), to);
        break;
      }
      case Statement::Type::kWith: return with(statement, scope, to);
      case Statement::Type::kBreak: return Flow::kBreak;
      case Statement::Type::kContinue: return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void write(const std::string& text, std::string& to) {
    budget_.text(text.size());
    if (to.size() + text.size() > kLargest) budget_.text(to.size() + text.size());
    to += text;
  }

  std::string written(const Statements& statements, const ScopePtr& scope) {
    std::string found;
    run(statements, std::make_shared<Scope>(scope), found);
    return found;
  }

  // Return the text of a block after its filters.
  Value filtered(const Statement& statement, const std::string& text, const ScopePtr& scope) {
    return statement.parts.empty() ? Value(text) : filtered(statement.parts[0], text, scope);
  }

  Value filtered(const Expression& filter, const std::string& text, const ScopePtr& scope) {
    if (filter.type == Expression::Type::kConstant) return text;
    return apply_filter(filter.name, filtered(filter.parts[0], text, scope), arguments(filter, scope), budget_);
  }

  void assign(const std::vector<std::string>& names, const Value& value, Scope& scope) {
    if (names.size() == 1) {
      scope.values[names[0]] = value;
      return;
    }
    const Values all = iterated(defined(value));
    if (all.size() < names.size()) throw TemplateError{"not enough values to unpack (expected " + std::to_string(names.size()) + ", got " + std::to_string(all.size()) + ")"};
    if (all.size() > names.size()) throw TemplateError{"too many values to unpack (expected " + std::to_string(names.size()) + ")"};
    for (size_t place = 0; place < names.size(); ++place) scope.values[names[place]] = all[place];
  }

  void set_attribute(const Statement& statement, const ScopePtr& scope) {
    const Value value = evaluate(statement.parts[0], scope);
    const Value* const found = scope->find(statement.names[0]);
    if (!found || !found->is(Value::Kind::kNamespace)) throw TemplateError{"cannot assign attribute on non-namespace object"};
    found->changed().set(statement.text, value);
  }

  Flow with(const Statement& statement, const ScopePtr& scope, std::string& to) {
    const auto inner = std::make_shared<Scope>(scope);
    for (size_t place = 0; place < statement.names.size(); ++place) inner->values[statement.names[place]] = evaluate(statement.parts[place], scope);
    return run(statement.body, inner, to);
  }

  // depth: of calls of a recursive loop.
  Flow loop(const Statement& statement, const Value& given, const ScopePtr& scope, int64_t depth, std::string& to) {
    Values all = iterated(given);
    budget_.list(all.size());
    if (statement.parts.size() > 1) {
      Values kept;
      for (Value& each : all) {
        const auto inner = std::make_shared<Scope>(scope);
        assign(statement.names, each, *inner);
        if (evaluate(statement.parts[1], inner).truth()) kept.push_back(std::move(each));
      }
      all = std::move(kept);
    }
    bool is_through = false;  // an iteration without break and continue: jinja2 goes on with {% else %} unless there was one
    for (size_t index = 0; index < all.size(); ++index) {
      const auto inner = std::make_shared<Scope>(scope);
      inner->values["loop"] = state(all, index, depth);
      if (statement.is_recursive) inner->values["loop"].changed().set(kCall, again(statement, scope, depth + 1));
      assign(statement.names, all[index], *inner);
      const Flow flow = run(statement.body, inner, to);
      is_through = is_through || flow == Flow::kNext;
      if (flow == Flow::kBreak) break;
    }
    return is_through ? Flow::kNext : run(statement.otherwise, scope, to);
  }

  // Return the variable `loop`.
  Value state(const Values& all, size_t index, int64_t depth) {
    const auto place = static_cast<int64_t>(index), size = static_cast<int64_t>(all.size());
    const Value after = place + 1 < size ? all[index + 1] : Value::undefined("there is no next item");
    const std::pair<const char*, Value> known[] = {
        {"index", place + 1}, {"index0", place}, {"revindex", size - place}, {"revindex0", size - place - 1}, {"first", place == 0}, {"last", place + 1 == size},
        {"length", size},     {"depth", depth + 1}, {"depth0", depth},       {"nextitem", after},
        {"previtem", index ? all[index - 1] : Value::undefined("there is no previous item")}};
    Dict found;
    for (const auto& [name, value] : known) found.set(name, value);
    found.set("cycle", Function([index](const Arguments& given) {
                if (given.positional.empty()) throw TemplateError{"no items for cycling given"};
                return given.positional[index % given.positional.size()];
              }));
    return budget_.name_space(std::move(found));
  }

  // Return what a recursive loop is called by.
  Value again(const Statement& statement, const ScopePtr& scope, int64_t depth) {
    return Function([this, &statement, depth, outer = std::weak_ptr<Scope>(scope)](const Arguments& given) {
      check_arguments("loop", given, "iterable!");
      std::string text;
      const ScopePtr around = outer.lock();
      if (!around) throw TemplateError{"it calls a loop outside of the block that has it"};
      loop(statement, *given.find(0, "iterable"), around, depth, text);
      return Value(text);
    });
  }

  // A macro, or the block of a call. The template and the scope outlive it.
  Value macro(const Statement& statement, const ScopePtr& scope) {
    return Function([this, &statement, outer = std::weak_ptr<Scope>(scope)](const Arguments& given) -> Value {
      const ScopePtr around = outer.lock();
      if (!around) throw TemplateError{"it calls a macro outside of the block that defines it"};
      const auto inner = std::make_shared<Scope>(around);
      const std::vector<Parameter>& parameters = statement.parameters;
      for (size_t place = 0; place < parameters.size(); ++place) {
        const Value* const value = given.find(place, parameters[place].name);
        inner->values[parameters[place].name] = value                              ? *value
                                                : !parameters[place].value.empty() ? evaluate(parameters[place].value[0], inner)
                                                                                   : Value::undefined("parameter '" + parameters[place].name + "' was not provided");
      }
      if (given.positional.size() > parameters.size())
        throw TemplateError{"macro takes not more than " + std::to_string(parameters.size()) + " argument(s)"};
      for (const auto& [name, value] : given.named) {
        const bool is_known = std::any_of(parameters.begin(), parameters.end(), [&name = name](const Parameter& each) { return each.name == name; });
        if (!is_known && name == "caller" && !statement.has_caller) throw TemplateError{"macro was invoked with two values for the special caller argument"};
        if (!is_known && name != "caller") throw TemplateError{"macro takes no keyword argument " + python_repr(name)};
        if (!is_known) inner->values[name] = value;
      }
      std::string text;
      run(statement.body, inner, text);
      return text;
    });
  }

  Arguments arguments(const Expression& call, const ScopePtr& scope) {
    Arguments found;
    for (size_t place = 1; place < call.parts.size(); ++place) found.positional.push_back(evaluate(call.parts[place], scope));
    for (const auto& [name, value] : call.named) add_named(name, evaluate(value, scope), found);
    return found;
  }

  // Add an argument by its name; or those of a list, or of a mapping.
  static void add_named(const std::string& name, const Value& value, Arguments& to) {
    if (name == "*") {
      const Values all = iterated(defined(value));
      to.positional.insert(to.positional.end(), all.begin(), all.end());
    } else if (name == "**") {
      if (!value.is_dict()) throw TemplateError{std::string("argument after ** must be a mapping, not ") + value.type()};
      for (const auto& [each, own] : value.dict().items()) {
        if (!key_of_name(each).is_text()) throw TemplateError{"keywords must be strings"};
        add_named(each, own, to);
      }
    } else if (std::any_of(to.named.begin(), to.named.end(), [&](const auto& each) { return each.first == name; })) {
      throw TemplateError{"got multiple values for keyword argument " + python_repr(name)};
    } else {
      to.named.emplace_back(name, value);
    }
  }

  static Value callable(const Value& value) { return value.is(Value::Kind::kNamespace) && value.changed().find(kCall) ? *value.changed().find(kCall) : value; }

  Value call(const Expression& expression, const ScopePtr& scope, const Value& caller = {}) {
    const Value function = callable(evaluate(expression.parts[0], scope));
    if (!function.is(Value::Kind::kFunction)) throw TemplateError{function.is_undefined() ? function.why() : std::string("'") + function.type() + "' object is not callable"};
    Arguments given = arguments(expression, scope);
    if (!caller.is_none()) given.named.emplace_back("caller", caller);
    return function.call(given);
  }

  Value evaluate(const Expression& expression, const ScopePtr& scope) {
    return at_line(expression.line, [&] { return value_of(expression, scope); });
  }

  Value value_of(const Expression& expression, const ScopePtr& scope) {
    using Type = Expression::Type;
    const auto part = [&](size_t place) { return evaluate(expression.parts[place], scope); };
    switch (expression.type) {
      case Type::kConstant: return expression.constant;
      case Type::kVariable: {
        const Value* const found = scope->find(expression.name);
        return found ? *found : global(expression.name, budget_);
      }
      case Type::kList:
      case Type::kTuple: return list_of(expression, scope);
      case Type::kDict: return dict_of(expression, scope);
      case Type::kAttribute: return attribute(part(0), expression.parts[1].constant.text(), budget_);
      case Type::kItem: return item(part(0), part(1), budget_);
      case Type::kSlice: return slice_of(expression, scope);
      case Type::kCall: return call(expression, scope);
      case Type::kFilter: return apply_filter(expression.name, part(0), arguments(expression, scope), budget_);
      case Type::kTest: return apply_test(expression.name, part(0), arguments(expression, scope));
      case Type::kNot: return !part(0).truth();
      case Type::kNegative: return negative(part(0));
      case Type::kPositive: return binary("+", int64_t{0}, part(0), budget_);
      case Type::kAnd:
      case Type::kOr: {
        Value left = part(0);
        return left.truth() == (expression.type == Type::kAnd) ? part(1) : left;
      }
      case Type::kChoice:
        if (part(1).truth()) return part(0);
        return expression.parts.size() > 2 ? part(2) : Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
      case Type::kBinary: return binary(expression.name, part(0), part(1), budget_);
      case Type::kComparison: return comparison_of(expression, scope);
      case Type::kConcatenation: return concatenation_of(expression, scope);
    }
    return {};
  }

  Value list_of(const Expression& expression, const ScopePtr& scope) {
    Values found;
    for (const Expression& each : expression.parts) found.push_back(evaluate(each, scope));
    return Value::list(std::move(found), expression.type == Expression::Type::kTuple);
  }

  Value negative(const Value& value) { return value.is(Value::Kind::kReal) ? Value(-value.real()) : binary("-", int64_t{0}, value, budget_); }

  std::string concatenation_of(const Expression& expression, const ScopePtr& scope) {
    std::string found;
    for (const Expression& each : expression.parts) found += evaluate(each, scope).str();
    budget_.text(found.size());
    return found;
  }

  Value dict_of(const Expression& expression, const ScopePtr& scope) {
    Dict found;
    for (size_t place = 0; place < expression.parts.size(); place += 2) {
      const Value key = evaluate(expression.parts[place], scope);
      require_hashable(defined(key));
      const bool fits = key.is_text() || key.is_none() || key.is(Value::Kind::kInteger);
      if (!fits) throw TemplateError{std::string("it makes a mapping with a key of type ") + key.type() + ", which is not supported here"};
      found.set(*name_of_key(key), evaluate(expression.parts[place + 1], scope));
    }
    return found;
  }

  Value slice_of(const Expression& expression, const ScopePtr& scope) {
    Value bounds[3];
    size_t given = 1;
    for (size_t place = 0; place < expression.operators.size(); ++place)
      if (expression.operators[place] == "1") bounds[place] = evaluate(expression.parts[given++], scope);
    return slice(evaluate(expression.parts[0], scope), bounds[0], bounds[1], bounds[2], budget_);
  }

  bool comparison_of(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(expression.parts[0], scope);
    for (size_t place = 0; place < expression.operators.size(); ++place) {
      Value right = evaluate(expression.parts[place + 1], scope);
      if (!compare(expression.operators[place], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  static constexpr size_t kLargest = size_t{1} << 24;

  Budget budget_;
  int depth_ = 0;
};

}  // namespace

std::string render(const std::string& source, const Dict& variables) {
  const Statements statements = parse_template(source);
  return Renderer().run(statements, variables);
}

}  // namespace spc::jinja
